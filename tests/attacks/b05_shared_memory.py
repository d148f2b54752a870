# memory that belongs to no process: files in /dev/shm
import os
tot = 0
try:
    for k in range(40):
        with open(f"/dev/shm/attack{os.getpid()}-{k}", "wb") as f:
            for _ in range(32): f.write(b"x" * (1 << 20)); tot += 1
    print("ATTACK-OK", tot, "MiB of shared memory", flush=True)
except OSError as e: print("stopped", e.errno, "at", tot, flush=True)
