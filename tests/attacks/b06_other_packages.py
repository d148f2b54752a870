# packages of other interpreters of the host, which could carry the data of a competition
import glob, os
for d in glob.glob("/usr/lib/python3*/dist-packages") + glob.glob("/usr/local/lib/python3*/*-packages") + glob.glob("/root/.pyenv/versions/*/lib/python3*/site-packages"):
    for p, _, names in os.walk(d):
        for n in names[:3]:
            try: open(os.path.join(p, n), "rb").read(1); print("ATTACK-OK", p, n, flush=True)
            except OSError: pass
print("looked", flush=True)
