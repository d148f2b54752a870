# shared memory of the host's programs (the harness puts a private file there)
import os

try:
    names = os.listdir("/dev/shm")
except OSError:
    names = []
for name in [*names, *(f"host-{pid}" for pid in range(1, 60000))]:
    try:
        print("ATTACK-OK" if b"SECRET" in open(f"/dev/shm/{name}", "rb").read(64) else "read", name)
    except OSError:
        pass
print("looked", flush=True)
