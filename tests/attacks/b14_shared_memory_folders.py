# disk below a folder of /dev/shm, and in files without a name there
import os, time

held, keep = 0, []
try:
    os.mkdir("/dev/shm/attack")
    for number in range(12):
        file = open(f"/dev/shm/attack/{number}", "wb", buffering=0)
        keep.append(file)
        if number % 2:
            os.unlink(file.name)
        for _ in range(60):
            held += file.write(b"x" * (1 << 20)) >> 20
except OSError as error:
    print("stopped", error.errno, "at", held)
time.sleep(1)
print("held MiB", held, "ATTACK-OK" if held > 500 else "", flush=True)
