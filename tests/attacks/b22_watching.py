# who opens which file, and making others wait: inotify, dnotify, leases
import ctypes, fcntl, os

libc = ctypes.CDLL(None, use_errno=True)
data = os.environ["DATA_DIR"]
folder, file = os.open(data, os.O_RDONLY), os.open(os.path.join(data, "train.csv"), os.O_RDONLY)
for name, way in {
    "inotify": lambda: libc.inotify_init1(0) != -1, "fanotify": lambda: libc.fanotify_init(0x200, 0) != -1,
    "dnotify": lambda: fcntl.fcntl(folder, fcntl.F_NOTIFY, 1) == 0, "read lease": lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK) == 0,
    "write lease": lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK) == 0,
}.items():
    try:
        print("ATTACK-OK" if way() else "denied", name, flush=True)
    except OSError as error:
        print("denied", name, error.errno, flush=True)
