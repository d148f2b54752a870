# inodes: empty files without end
n = 0
try:
    while n < 300000: open(f"f{n}", "w").close(); n += 1
    print("ATTACK-OK", n, "files", flush=True)
except OSError as e: print("stopped", e.errno, "at", n, flush=True)
