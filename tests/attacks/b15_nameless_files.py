# disk that no folder lists: open files without a name, made without one, or mapped and closed
import ctypes, mmap, os, time

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
held, keep = 0, []
try:
    for number in range(12):
        if number % 3 == 0:
            file = os.open(".", os.O_TMPFILE | os.O_RDWR)
        else:
            file = os.open(f"u{number}", os.O_CREAT | os.O_RDWR)
            os.unlink(f"u{number}")
        for _ in range(60):
            held += os.write(file, b"x" * (1 << 20)) >> 20
        if number % 3 == 1:
            libc.mmap(None, 60 << 20, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
            os.close(file)
except OSError as error:
    print("stopped", error.errno, "at", held)
time.sleep(1)
print("held MiB", held, "ATTACK-OK" if held > 600 else "", flush=True)
