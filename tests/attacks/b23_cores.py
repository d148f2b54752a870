# more cores than it was given (the harness gives it one)
import os

try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError as error:
    print("denied", error.errno)
print("cores", len(os.sched_getaffinity(0)), flush=True)
