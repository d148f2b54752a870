# what outlives a run: System V shared memory, queues and semaphores, POSIX queues
import ctypes, os

libc = ctypes.CDLL(None, use_errno=True)
KEY, CREATE = 0x574D424C, 0o1666
for name, make in {
    "shared memory": lambda: libc.shmget(KEY, 1 << 20, CREATE), "queue": lambda: libc.msgget(KEY, CREATE),
    "semaphore": lambda: libc.semget(KEY, 1, CREATE), "POSIX queue": lambda: libc.mq_open(b"/attack", 0o102, 0o666, None),
}.items():
    print("ATTACK-OK" if make() != -1 else "denied", name, flush=True)
