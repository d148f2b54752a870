"""`DockerSandbox`: one hardened container a solution, on Docker's SDK.

Inside runs the same supervisor as in `ProcessSandbox`; around it the container has no network, a read-only root, no
capability, and limits on memory and processes. podman's Docker-compatible socket works too (`podman system service`, its
address in `DOCKER_HOST`); rootless podman without cgroup v2 ignores the limits of the container, and those of the
supervisor inside remain.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wmrl_envs.errors import DataNotBuilt, InfrastructureError, MissingExtra
from wmrl_envs.execution.base import ExecutionLimits, Job, Sandbox
from wmrl_envs.execution.classify import to_execution, unusable_code
from wmrl_envs.execution.environment import SandboxEnvironment, load_environment
from wmrl_envs.execution.process.box import wire
from wmrl_envs.execution.process.box.namespaces import DATA, SETTINGS, SYSTEM, WORK, other_packages, readable_by_others
from wmrl_envs.execution.process.box.tiers import folder_name, start_time
from wmrl_envs.execution.process.client import encode
from wmrl_envs.execution.process.gpus import GpuLeases
from wmrl_envs.execution.process.reaper import reap
from wmrl_envs.outcome import Execution, ExecutionStatus

log = logging.getLogger(__name__)

#: Labels of every container of ours: whose it is, as `<pid>-<start time>`, so that a later start can remove a dead one's.
LABEL = "wmrl.owner"
HOST_IMAGE = "wmrl-host:1"
_IMAGE_VENV = "/opt/venv"
_USER = "65534:65534"
_BOOT = "import sys; sys.path[0] = '/wmrl'; from box.contain import main; del sys.path[0]; main()"
_GRACE_S = 60.0


class DockerSandbox(Sandbox):
    """Solutions in containers.

    Args:
        image: an image made from `sandbox/Dockerfile`, or "host": an empty image that sees this machine's libraries and the
            sandbox environment read-only (needs no registry).
        environment: name or folder of the sandbox environment (with "host").
        gpus: indices or UUIDs of the GPUs to lend, one solution a GPU. Not tested on a GPU machine.
        runtime: another OCI runtime, such as "runsc" (gVisor).
        base_url: the daemon's address (default: as the `docker` command finds it).
        attempts: how often a run is tried when the daemon or the container fails us.

    Raises:
        MissingExtra: the package `docker` is absent. InfrastructureError: no daemon answers. DataNotBuilt: no such image.
    """

    tier = "docker"

    def __init__(
        self,
        image: str = "wmrl-sandbox:cpu",
        *,
        environment: str | Path = "default",
        gpus: Sequence[str | int] = (),
        runtime: str | None = None,
        base_url: str | None = None,
        attempts: int = 3,
    ):
        self._client = connect(base_url)
        self._image, self._runtime, self._attempts = image, runtime, attempts
        self._gpus = GpuLeases(gpus)
        self._owner = f"{os.getpid()}-{start_time(os.getpid())}"
        self._environment: SandboxEnvironment | None = None
        self._closed = False
        reap_containers(self._client)
        reap()
        if image == "host":
            self._environment = load_environment(environment)
            self._image = HOST_IMAGE
            _make_host_image(self._client)
        self._image_id = _image_id(self._client, self._image)

    @property
    def lock(self) -> str:
        return self._environment.digest if self._environment else self._image_id

    def run_job(self, job: Job) -> Execution:
        problem = unusable_code(job.code)
        if problem:
            return Execution(ExecutionStatus.AGENT_ERROR, exit_code=1, stderr=problem, tier=self.tier)
        venv = Path(_IMAGE_VENV) if self._environment is None else self._environment.root
        prefix = Path("/usr/local") if self._environment is None else self._environment.base_prefix
        retrying = Retrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=0.2, max=5.0),
            reraise=True,
        )
        with self._gpus.lease() as gpu:
            more = {"temporary": "/tmp", "memory_counted": True, "devices": [gpu] if gpu else []}
            message = encode(job, str(venv), str(prefix), self.tier, warm=False, **more)
            return retrying(self._once, job, message, str(venv), gpu)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for container in self._client.containers.list(all=True, filters={"label": f"{LABEL}={self._owner}"}):
                _remove(container)
            self._client.close()

    def _once(self, job: Job, message: bytes, venv: str, gpu: str | None) -> Execution:
        import docker
        import requests

        try:
            with _staged(job, message) as (folder, data):
                options = self._options(job.limits, folder, data, venv, gpu)
                container = self._client.containers.create(self._image, **options)
                try:
                    return self._follow(container, job.limits)
                finally:
                    _remove(container)
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise InfrastructureError(f"The Docker sandbox failed: {error}") from error

    def _options(self, limits: ExecutionLimits, folder: Path, data: Path, venv: str, gpu: str | None) -> dict[str, Any]:
        import docker

        memory = int(limits.memory_mb * 2**20)
        disk = f"rw,exec,nosuid,nodev,uid={_USER.split(':')[0]},mode=0700,size={max(1, int(limits.disk_mb * 1024))}k"
        inodes = f"nr_inodes={max(20_000, 16 * int(limits.disk_mb))}"
        mounts = [(str(folder), "/wmrl"), (str(data), DATA)]
        if self._environment is not None:
            mounts += _host_mounts(self._environment, folder / "empty")
        requests = [docker.types.DeviceRequest(device_ids=[gpu], capabilities=[["gpu"]])] if gpu else None
        return {
            "command": [f"{venv}/bin/python", "-s", "-c", _BOOT, "/wmrl/job"],
            "user": _USER, "working_dir": WORK, "environment": {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            "labels": {LABEL: self._owner}, "runtime": self._runtime, "device_requests": requests,
            "network_mode": "none", "read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"],
            "ipc_mode": "private", "shm_size": max(1 << 20, int(limits.disk_mb * 2**20) // 4),
            # Above what the supervisor inside enforces by itself: it tells causes apart, this is the wall behind it.
            "mem_limit": memory + (64 << 20), "memswap_limit": memory + (64 << 20), "pids_limit": int(limits.processes) + 2,
            "tmpfs": {WORK: f"{disk},{inodes}", "/tmp": f"{disk},{inodes}"},
            "mounts": [docker.types.Mount(target, source, type="bind", read_only=True) for source, target in mounts],
            "log_config": docker.types.LogConfig(type="none"), "stdin_open": False, "tty": False,
        }  # fmt: skip

    def _follow(self, container: Any, limits: ExecutionLimits) -> Execution:
        """Start a container and read its answer; it is stopped if it outlives its own time limit."""
        answer = _Answer(container.attach(stdout=True, stderr=True, stream=True, logs=False, demux=True), limits)
        expired = threading.Event()

        def give_up() -> None:
            expired.set()
            _remove(container)

        overdue = threading.Timer(limits.timeout_s + _GRACE_S, give_up)
        overdue.daemon = True
        container.start()
        overdue.start()
        started, header, parts = False, dict[str, Any](), list[bytes]()
        try:
            header, parts = wire.unpack(answer.read)
            if header.get("started"):
                started, header = True, {}
                header, parts = wire.unpack(answer.read)
        except (EOFError, ValueError):
            header = {}
        finally:
            overdue.cancel()
        if expired.is_set() and started:
            return Execution(ExecutionStatus.TIMEOUT, exit_code=-9, tier=self.tier, wall_s=limits.timeout_s + _GRACE_S)
        container.reload()
        killed_for_memory = container.attrs["State"].get("OOMKilled", False)
        if not header and killed_for_memory:
            return Execution(ExecutionStatus.MEMORY, exit_code=-9, tier=self.tier, peak_memory_mb=limits.memory_mb)
        if not header and started:  # whatever ended the supervisor, it ended while the program ran
            return Execution(ExecutionStatus.AGENT_ERROR, exit_code=-9, tier=self.tier, detail="the container ended")
        if not header:
            raise InfrastructureError(f"The container gave no answer: {answer.complaint or container.attrs['State']}")
        if "infra" in header:
            raise InfrastructureError(f"The Docker sandbox failed: {header['infra']}")
        if killed_for_memory and not header.get("killed"):
            header["killed"] = "memory"
        return to_execution(header, parts, self.tier)


class _Answer:
    """What a container writes, read as it comes."""

    def __init__(self, stream: Iterator[tuple[bytes | None, bytes | None]], limits: ExecutionLimits):
        self._stream, self._piece, self._errors = stream, b"", b""
        self._left = int(limits.submission_mb * 2**20 + 2 * limits.output_bytes) + (1 << 20)

    @property
    def complaint(self) -> str:
        """The last line of its errors."""
        return (self._errors.decode(errors="replace").strip().splitlines() or [""])[-1]

    def read(self, size: int) -> bytes:
        while not self._piece:
            out, err = next(self._stream, (None, None))
            if out is None and err is None:
                return b""
            self._errors = (self._errors + (err or b""))[-4000:]
            self._piece = out or b""
            self._left -= len(self._piece)
            if self._left < 0:
                raise InfrastructureError("The container's answer is longer than its limits allow.")
        taken, self._piece = self._piece[:size], self._piece[size:]
        return taken


def reap_containers(client: Any) -> int:
    """Remove the containers of dead processes of ours; how many there were."""
    count = 0
    for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
        pid, _, started = container.labels[LABEL].partition("-")
        if start_time(int(pid)) != int(started):
            log.warning("removing the container %s of the dead process %s", container.short_id, pid)
            _remove(container)
            count += 1
    return count


def connect(base_url: str | None) -> Any:
    """A client of the daemon at `base_url` (default: as the `docker` command finds it)."""
    try:
        import docker
        import requests
    except ImportError:
        raise MissingExtra("docker", "docker", "The Docker sandbox") from None
    try:
        client = docker.DockerClient(base_url=base_url) if base_url else docker.from_env()
        client.ping()
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise InfrastructureError(f"No Docker daemon answers ({error}): start one, or set DOCKER_HOST.") from None
    return client


def _image_id(client: Any, image: str) -> str:
    import docker

    try:
        return client.images.get(image).id
    except docker.errors.ImageNotFound:
        raise DataNotBuilt(
            f"There is no image {image!r}: build it with `docker build -t {image} --build-arg "
            "REQUIREMENTS=requirements-cpu.txt sandbox`, or use image='host'."
        ) from None


def _make_host_image(client: Any) -> None:
    """An image of nothing but folders: everything in it is mounted from the host."""
    import docker

    try:
        client.images.get(HOST_IMAGE)
        return
    except docker.errors.ImageNotFound:
        pass
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("work", "data", "wmrl", "tmp", "proc", "dev", "etc", "usr"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        passwd = b"root:x:0:0::/:/bin/false\nagent:x:65534:65534::/tmp:/bin/sh\n"
        info = tarfile.TarInfo("etc/passwd")
        info.size, info.mode = len(passwd), 0o644
        tar.addfile(info, io.BytesIO(passwd))
        for name in SYSTEM:
            if os.path.islink(f"/{name}"):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, os.readlink(f"/{name}")
                tar.addfile(link)
    repository, _, tag = HOST_IMAGE.partition(":")
    client.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)


def _host_mounts(environment: SandboxEnvironment, empty: Path) -> list[tuple[str, str]]:
    prefix = str(environment.base_prefix)
    wanted = [f"/{name}" for name in (*SYSTEM, *SETTINGS)]
    mounts = [(path, path) for path in wanted if os.path.exists(path) and not os.path.islink(path)]
    if prefix != "/usr":
        mounts.append((prefix, prefix))
    mounts.append((str(environment.root), str(environment.root)))
    return mounts + [(str(empty), path) for path in other_packages(prefix)]


@contextlib.contextmanager
def _staged(job: Job, message: bytes) -> Iterator[tuple[Path, Path]]:
    """A folder for one container (its job and our code), and the data as anybody can read it."""
    with tempfile.TemporaryDirectory(prefix=folder_name("docker", os.getpid()) + "-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "empty").mkdir()
        shutil.copytree(Path(__file__).parent / "process" / "box", folder / "box", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "job").write_bytes(message)
        data = job.data_dir.expanduser().resolve()
        if not readable_by_others(str(data)):
            data = Path(shutil.copytree(data, folder / "data"))
            for path in (data, *data.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
        yield folder, data


def _remove(container: Any) -> None:
    import docker
    import requests

    try:
        container.remove(force=True, v=True)
    except docker.errors.NotFound:
        pass
    except (docker.errors.DockerException, requests.RequestException) as error:
        log.warning("the container %s could not be removed now; the next start tries again: %s", container.short_id, error)
