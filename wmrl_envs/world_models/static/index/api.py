"""`ApiIndex`: which names, parameters and estimator properties the sandbox's libraries have, looked up without importing them.

The index is made once per environment by running `index_script.py` with the sandbox's interpreter and is cached as JSON
under `paths.home()/api_index`. Nothing an agent names is ever imported in our process.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from wmrl_envs import paths
from wmrl_envs.errors import DataNotBuilt, InfrastructureError, InvalidInput

log = logging.getLogger(__name__)
_SCRIPT = Path(__file__).with_name("script.py")
_IMPORT_NAMES = {  # distributions whose import name differs, for locks without an interpreter beside them
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "beautifulsoup4": "bs4",
    "python-dateutil": "dateutil",
    "scikit-image": "skimage",
    "imbalanced-learn": "imblearn",
    "xgboost-cpu": "xgboost",
}

UNKNOWN = None  # the index cannot say; MISSING: it is sure that there is no such thing
MISSING = "missing"


class ApiIndex:
    """Answers about one environment.

    Args:
        data: what `index_script.py` printed.
        lock: distribution -> version; if given, only these (and the standard library) count as installed.
    """

    def __init__(self, data: Mapping[str, Any], lock: Mapping[str, str] | None = None):
        self._modules: Mapping[str, Mapping[str, str]] = data["modules"]
        self._objects: Mapping[str, dict] = data["objects"]
        self.python: str = data["python"]
        self.versions: dict[str, str] = dict(lock) if lock is not None else dict(data["versions"])
        self._top_level = set(data["top_level"])
        if lock is not None:
            mine = {_IMPORT_NAMES.get(n.lower(), n.lower().replace("-", "_")) for n in lock}
            lower = {m.lower() for m in mine}
            stdlib = set(sys.stdlib_module_names) | set(sys.builtin_module_names)
            self._top_level = stdlib | mine | {t for t in self._top_level if t.lower() in lower}

    def with_packages(self, installed: Sequence[str]) -> ApiIndex:
        """This index where further distributions are installed ("name==version"), of whose interfaces nothing is known."""
        names = {package.partition("==")[0].lower() for package in installed}
        more = {_IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names - {n.lower() for n in self.versions}}
        if more <= self._top_level:
            return self
        wider = copy.copy(self)
        wider.__dict__.pop("top_level", None)
        wider._top_level = self._top_level | more
        return wider

    @cached_property
    def top_level(self) -> frozenset[str]:
        """Names that `import NAME` finds."""
        return frozenset(self._top_level)

    def module_exists(self, path: str) -> bool | None:
        """Whether `import path` works: True, False, or None where the index does not reach."""
        first = path.split(".")[0]
        if first not in self._top_level:
            return False
        if path in self._modules or "." not in path:
            return True
        if first not in self._modules:
            return UNKNOWN
        parent, _, last = path.rpartition(".")
        if last.startswith("_") or parent not in self._modules:
            return UNKNOWN if self.module_exists(parent) is not False else False
        return self._modules[parent].get(last, "").startswith("module:") or (
            UNKNOWN if last in self._modules[parent] else False
        )

    def resolve(self, path: str) -> dict | str | None:
        """The entry of a dotted name (`{"t": "class" | "function" | "module" | "value", ...}`), MISSING, or UNKNOWN.

        >>> index = ApiIndex({"modules": {"m": {"f": ""}}, "objects": {}, "python": "3", "versions": {}, "top_level": ["m"]})
        >>> index.resolve("m.f"), index.resolve("m.g"), index.resolve("other.g")
        ({'t': 'value'}, 'missing', None)
        """
        if path in self._modules:
            return {"t": "module"}
        module, _, name = path.rpartition(".")
        if module not in self._modules:
            if module:
                owner = self.resolve(module)
                if isinstance(owner, dict) and owner["t"] == "class":
                    members = owner["members"]
                    return {"t": "function", "name": name, "sig": members[name]} if name in members else UNKNOWN
                if isinstance(owner, dict) and owner["t"] == "module":
                    return UNKNOWN
            return UNKNOWN
        names = self._modules[module]
        if name not in names:
            return UNKNOWN if name.startswith("_") else MISSING
        target = names[name]
        if target.startswith("module:"):
            return {"t": "module"}
        return self._objects.get(target, {"t": "value"}) if target else {"t": "value"}


def _interpreter() -> Path:
    """The interpreter solutions run with; our own, which has the same pins in this repository, while none has been built."""
    from wmrl_envs.execution.environment import load_environment

    try:
        return load_environment().python
    except DataNotBuilt:
        log.warning(
            "no sandbox environment has been built (wmrl sandbox build): indexing the libraries of this interpreter instead"
        )
        return Path(sys.executable)


def _fingerprint(interpreter: Path) -> str:
    """Changes when the interpreter, its installed distributions or the script change."""
    library = next(iter(sorted(interpreter.parent.parent.glob("lib/python3*/site-packages"))), None)
    installed = sorted(p.name for p in library.glob("*.dist-info")) if library else []
    text = "\n".join([str(interpreter), *installed, hashlib.sha256(_SCRIPT.read_bytes()).hexdigest()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _load(interpreter: Path) -> Mapping[str, Any]:
    from filelock import FileLock

    folder = paths.home() / "api_index"
    file = folder / f"{_fingerprint(interpreter)}.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"):
            if not file.exists():
                log.info("indexing the libraries of %s (once)", interpreter)
                env = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PATH": os.environ.get("PATH", "")}
                made = subprocess.run(
                    [str(interpreter), "-I", str(_SCRIPT)], capture_output=True, text=True, timeout=600, env=env, check=False
                )
                if made.returncode != 0:
                    raise InfrastructureError(f"indexing the libraries of {interpreter} failed: {made.stderr[-400:]}")
                part = file.with_suffix(f".{os.getpid()}.part")
                part.write_text(made.stdout[made.stdout.index('{"python"') :])
                os.replace(part, file)
    return json.loads(file.read_text())


def read_lock(lock: Mapping[str, str] | str | Path) -> dict[str, str]:
    """Distribution -> version from a mapping or a requirements file with `name==version` lines.

    >>> read_lock({"numpy": "2.4.6"})
    {'numpy': '2.4.6'}
    """
    if isinstance(lock, Mapping):
        return {str(k): str(v) for k, v in lock.items()}
    file = Path(lock)
    if not file.is_file():
        raise InvalidInput(
            f"sandbox_lock={str(lock)!r}: expected a mapping or the path of a requirements file with name==version lines."
        )
    pins = re.findall(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\#]+)", file.read_text(), re.MULTILINE)
    if not pins:
        raise InvalidInput(f"sandbox_lock={str(lock)!r} has no name==version line.")
    return dict(pins)


def load_index(lock: Mapping[str, str] | str | Path | None = None, interpreter: Path | None = None) -> ApiIndex:
    """The index of the sandbox's environment (a few seconds the first time, then cached on disk and in memory)."""
    return ApiIndex(_load(interpreter or _interpreter()), read_lock(lock) if lock is not None else None)
