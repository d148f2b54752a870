# write, truncate, rename, remove, touch and make files in the data
import os
d = os.environ["DATA_DIR"]; f = d + "/" + os.listdir(d)[0]
def t(n, g):
    was = os.stat(f)
    try: g(); now = os.stat(f); print("denied silently" if (was.st_mode, was.st_mtime) == (now.st_mode, now.st_mtime) and n in ("utime", "chmod") else "ATTACK-OK", n, flush=True)
    except OSError as e: print("denied", n, e.errno, flush=True)
t("write", lambda: open(f, "r+").write("x"))
t("truncate", lambda: os.truncate(f, 0))
t("rename", lambda: os.rename(f, f + "2"))
t("remove", lambda: os.unlink(f))
t("utime", lambda: os.utime(f, (0, 0)))
t("chmod", lambda: os.chmod(f, 0o777))
t("make", lambda: open(d + "/attack", "w"))
