# disk space where a walk over paths does not get: below thousands of folders
import os, time
for _ in range(4000): os.mkdir("d"); os.chdir("d")
n = 0
try:
    for n in range(64):
        with open(f"f{n}", "wb") as f: f.write(b"x" * (8 << 20))
        time.sleep(0.02)
except OSError as e: print("stopped", e.errno, flush=True)
else: print("ATTACK-OK", n, "files", flush=True)
