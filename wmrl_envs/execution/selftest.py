"""Which isolation works here, found out by trying it: a hostile script is run in it and tells what it could do."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import secrets
import socket
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from wmrl_envs import paths
from wmrl_envs.errors import InfrastructureError, InvalidInput, IsolationError
from wmrl_envs.execution.base import ExecutionLimits, Job
from wmrl_envs.execution.environment import SandboxEnvironment
from wmrl_envs.execution.process.box import cgroup
from wmrl_envs.execution.process.box.tiers import folder_name
from wmrl_envs.execution.process.client import Server, encode

log = logging.getLogger(__name__)

ISOLATING = ("namespaces", "landlock")  # the better one first
_LIMITS = ExecutionLimits(timeout_s=20, memory_mb=1024, processes=12, file_mb=16, disk_mb=32, submission_mb=1)
_ADVICE = (
    "Allow unprivileged user namespaces (user.max_user_namespaces above 0; on Ubuntu 24.04 an AppArmor profile with `userns,` "
    "for the interpreter), run as root, use a kernel of 6.12 or later for Landlock, or use the Docker sandbox. "
    "allow_unsafe=True runs the code without isolation."
)
# Each probe's name goes into the error message: it says what the solution must not be able to do.
_PROBES = """
import ctypes, json, os, resource, socket
secret, host_pid, abstract, port, counted = json.loads(os.environ["PROBE"])
libc = ctypes.CDLL(None, use_errno=True)
allowed = []
def probe(name, attempt):
    try:
        if attempt() is not False:
            allowed.append(name)
    except OSError:
        pass
def is_ours(pid):  # with a pid namespace the host's process may have the number of one of this run
    return pid in (os.getpid(), os.getppid())
def forks():
    children = 0
    try:
        for children in range(40):
            if os.fork() == 0:
                os.read(os.pipe()[0], 1)
    except OSError:
        return False
def abstract_socket():
    socket.socket(socket.AF_UNIX).connect("\\0" + abstract)
def socket_file():
    os.chdir(os.path.dirname(secret))  # its whole path may be longer than an address can be
    socket.socket(socket.AF_UNIX).connect("socket")
def on_others(attempt):
    worked = False
    for pid in {os.getppid(), *(() if is_ours(host_pid) else (host_pid,))}:
        try:
            attempt(pid)
            worked = True
        except OSError:
            pass
    return worked
def io_priority(pid):
    number = {"x86_64": 251, "aarch64": 30}[os.uname().machine]
    if libc.syscall(number, 1, pid, 0):
        raise OSError
def more_cores():
    os.sched_setaffinity(0, range(os.cpu_count()))
    return len(os.sched_getaffinity(0)) > 1
def shared_segment():
    number = libc.shmget(0, 4096, 0o600)
    return number != -1 and libc.shmctl(number, 0, None) == 0
def hidden_memory():
    return False if counted else os.close(os.memfd_create("probe"))
probe("read a file of the host", lambda: open(secret).read())
probe("write outside its work directory", lambda: open(os.path.dirname(secret) + "/made", "w"))
probe("write to the data", lambda: open(DATA_DIR + "/made", "w"))
probe("see the environment of the host", lambda: False if is_ours(host_pid) else open(f"/proc/{host_pid}/environ").read())
probe("connect to the host by TCP", lambda: socket.create_connection(("127.0.0.1", port), 1))
probe("connect to an abstract socket of the host", abstract_socket)
probe("connect to a socket file of the host", socket_file)
probe("signal a process of the host", lambda: False if is_ours(host_pid) else os.kill(host_pid, 0))
probe("read shared memory of the host", lambda: open("/dev/shm/" + abstract).read())
probe("signal the process that collects its submission", lambda: os.kill(os.getppid(), 0))
probe("change the limits of another process", lambda: on_others(lambda p: resource.prlimit(p, resource.RLIMIT_CORE)))
probe("move another process to other cores", lambda: on_others(lambda p: os.sched_setaffinity(p, os.sched_getaffinity(p))))
probe("change the scheduling of another process",
      lambda: on_others(lambda p: os.sched_setscheduler(p, os.sched_getscheduler(p), os.sched_param(0))))
probe("change the priority of another process", lambda: on_others(lambda p: os.setpriority(0, p, os.getpriority(0, p))))
probe("change the I/O priority of another process", lambda: on_others(io_priority))
probe("use more cores than it is given", more_cores)
probe("use System V shared memory", shared_segment)
probe("watch files of the host", lambda: libc.inotify_init1(0) != -1)
probe("hold memory that is not counted", hidden_memory)
probe("become root", lambda: os.setuid(0) if os.getuid() else False)
probe("make a user namespace", lambda: libc.unshare(0x10000000) == 0)
probe("start more processes than allowed", forks)
print(json.dumps(allowed))
"""
#: What the self-test tries; none of it may work.
PROBES = tuple(re.findall(r'^probe\("([^"]+)"', _PROBES, re.MULTILINE))


def probe_tier(environment: SandboxEnvironment, tier: str) -> list[str]:
    """What a solution can do in `tier` that it must not; [] if the tier isolates on this machine."""
    server = Server(environment, ())
    try:
        with tempfile.TemporaryDirectory(prefix=folder_name("probe", os.getpid()) + "-") as folder:
            return _probe(server, environment, tier, Path(folder))
    except (InfrastructureError, OSError) as error:
        return [f"not even start ({error})"]
    finally:
        server.close()


def _probe(server: Server, environment: SandboxEnvironment, tier: str, folder: Path) -> list[str]:
    data, secret = folder / "data", folder / "secret"
    data.mkdir()
    folder.chmod(0o755)  # by the isolation, not by a file mode, must the secret be out of reach
    secret.write_text("secret")
    name = f"wmrl-probe-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        opened = os.open(folder, os.O_PATH)
        stack.callback(os.close, opened)
        for address in (f"\0{name}", f"/proc/self/fd/{opened}/socket"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        (folder / "socket").chmod(0o777)
        with suppress(OSError):  # a machine without it
            shared = Path("/dev/shm", name)
            stack.callback(shared.unlink, missing_ok=True)
            shared.write_text("secret")
        group = cgroup.usable_group()
        env = {"PROBE": json.dumps([str(secret), os.getpid(), name, tcp.getsockname()[1], bool(group)])}
        job, core = Job(_PROBES, data, _LIMITS, env=env), min(os.sched_getaffinity(0))
        message = encode(job, str(environment.root), str(environment.base_prefix), tier, warm=False, cpus=[core], group=group)
        answer, (out, err, _) = server.ask(message, 60)
    if "infra" in answer:
        return [f"not even start ({answer['infra']})"]
    try:
        return list(json.loads(out.decode()))
    except ValueError:
        reason = err.decode(errors="replace").strip().splitlines()[-1:] or [f"exit status {answer['exit']}"]
        return [f"not finish the self-test ({reason[0]})"]


def tier_report(environment: SandboxEnvironment, *, fresh: bool = False) -> dict[str, list[str]]:
    """`probe_tier` of every isolating tier; remembered for this boot, kernel, user and version of the code."""
    file = paths.sandbox_dir() / "selftest.json"
    key = _machine(environment)
    if not fresh:
        try:
            remembered = json.loads(file.read_text())
            if remembered["key"] == key:
                return remembered["tiers"]
        except (OSError, ValueError, KeyError):
            pass
    tiers = {tier: probe_tier(environment, tier) for tier in ISOLATING}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"key": key, "tiers": tiers}))
        temporary.replace(file)
    except OSError as error:
        log.warning("the self-test's result cannot be remembered in %s: %s", file, error)
    return tiers


def choose_tier(environment: SandboxEnvironment, wanted: str = "auto", *, allow_unsafe: bool = False) -> str:
    """The tier to run untrusted code in.

    Raises:
        InvalidInput: an unknown tier. IsolationError: the wanted one (for "auto": any) does not isolate on this machine.
    """
    if wanted not in ("auto", "unsafe", *ISOLATING):
        raise InvalidInput(f"There is no tier {wanted!r}: expected 'auto', {', '.join(map(repr, ISOLATING))} or 'unsafe'.")
    candidates = ISOLATING if wanted == "auto" else tuple(tier for tier in ISOLATING if tier == wanted)
    report = tier_report(environment) if candidates else {}
    for tier in candidates:
        if not report[tier]:
            return tier
    if allow_unsafe:
        log.warning("running untrusted code WITHOUT isolation (allow_unsafe=True)")
        return "unsafe" if wanted == "auto" else wanted
    if not candidates:
        raise IsolationError("The tier 'unsafe' isolates nothing: it needs allow_unsafe=True.")
    failures = "; ".join(f"in {tier} a solution can {', '.join(report[tier])}" for tier in candidates)
    raise IsolationError(f"This machine cannot isolate untrusted code: {failures}. {_ADVICE}")


def memory_words() -> str:
    """What limits the memory of a program here, for people."""
    group = cgroup.usable_group()
    if group:
        return f"the kernel, in a control group of each run below {group}: pages of any kind, page tables, files, sockets"
    return (
        "each process by the kernel, all together by counting 20 times a second; no control group (cgroup v2) can be made "
        "here. Memory that is no process's own (memfd_create, shared pages without a file) is refused; see SECURITY.md"
    )


def _machine(environment: SandboxEnvironment) -> str:
    parts = [platform.release(), str(os.geteuid()), environment.digest, str(environment.root), str(cgroup.usable_group())]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts += [os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt", "pid")]
    except OSError:
        parts.append("unknown boot")
    box = Path(__file__).parent / "process" / "box"
    parts += [hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(box.glob("*.py"))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
