# limits, cores, scheduling, priorities and memory of the processes around it
import ctypes, os, resource

libc = ctypes.CDLL(None, use_errno=True)
me = os.getpid()


def io_priority(pid):
    if libc.syscall(251 if os.uname().machine == "x86_64" else 30, 1, pid, 3 << 13):
        raise OSError


ways = {
    "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1, resource.prlimit(pid, resource.RLIMIT_CPU)[1])),
    "look at limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE),
    "cores": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    "scheduling": lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    "parameters": lambda pid: os.sched_setparam(pid, os.sched_param(0)),
    "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + 1),
    "I/O priority": io_priority,
    "score": lambda pid: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"),
    "memory": lambda pid: open(f"/proc/{pid}/mem", "rb"),
    "environment": lambda pid: open(f"/proc/{pid}/environ", "rb").read(),
    "descriptors": lambda pid: os.listdir(f"/proc/{pid}/fd"),
}
for pid in sorted({1, os.getppid(), *range(max(2, me - 60), me)} - {me}):
    for name, way in ways.items():
        try:
            way(pid)
            print("ATTACK-OK", pid, "parent" if pid == os.getppid() else "", name, flush=True)
        except (OSError, ValueError, OverflowError):
            pass
for name, way in {"priority of a user": lambda: os.setpriority(os.PRIO_USER, 0, 5)}.items():
    try:
        way()
        print("ATTACK-OK", name)
    except OSError:
        pass
print("looked")
