# daemons in sessions of their own, holding the output open, with every signal ignored
import os, signal, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for s in range(1, 32):
                try: signal.signal(s, signal.SIG_IGN)
                except (OSError, ValueError): pass
            time.sleep(300)
        os._exit(0)
print("left behind", flush=True)
