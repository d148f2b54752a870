"""`wmrl sandbox build`, `wmrl sandbox check` and `wmrl doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from wmrl_envs import paths
from wmrl_envs.errors import InvalidInput, WmrlError, install_hint
from wmrl_train.run.terminal import Terminal

_SETS = {"cpu": "requirements-cpu.txt", "kaggle": "requirements-kaggle.txt", "gpu": "requirements.txt"}
"""Set of libraries -> its file in `sandbox/`."""

_EXTRAS = {
    "train": (
        "torch transformers peft safetensors gguf matplotlib jinja2",
        "training, language models in this process, reports",
    ),
    "docker": ("docker", "execution in containers, for machines whose kernel cannot isolate"),
    "sb3": ("stable_baselines3", "agents of Stable-Baselines3 on anchored environments"),
    "vllm": ("vllm", "sampling on GPUs"),
    "libero": ("libero mujoco", "the simulator of LIBERO-Long-v0"),
    "ray": ("ray", "execution and sampling on several machines"),
    "trackers": ("tensorboard wandb trackio", "curves in TensorBoard, Weights & Biases or trackio beside the run's own logs"),
}
"""Extra -> (its modules, what it is for)."""


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    sandbox = typer.Typer(help="The environment solutions run in, and the isolation around it.", no_args_is_help=True)
    sandbox.command("build")(build)
    sandbox.command("check")(check)
    app.add_typer(sandbox, name="sandbox")
    app.command("doctor")(doctor)


def build(
    name: Annotated[str | None, typer.Option(help="Name of the environment (default: default, or that of the set).")] = None,
    requirements: Annotated[Path | None, typer.Option(help="A pip requirements file in place of a set.")] = None,
    which: Annotated[
        str,
        typer.Option(
            "--set",
            help=f"Set of libraries: {', '.join(_SETS)} (small, what programs for Kaggle import, the paper's for GPUs).",
        ),
    ] = "cpu",
    force: Annotated[bool, typer.Option(help="Rebuild even if it is up to date.")] = False,
) -> None:
    """Make the virtual environment solutions run in (a second call does nothing)."""
    from wmrl_envs.execution.environment import build_environment
    from wmrl_envs.world_models.static.index.api import load_index

    if which not in _SETS:
        raise InvalidInput(f"--set {which}: expected one of {', '.join(_SETS)}.")
    name = name or ("default" if which == "cpu" else which)
    environment = build_environment(name, requirements or paths.box_sources() / _SETS[which], force=force)
    if name == "default":
        load_index()  # what the static world model looks up; cached, so that no run pays for it
    Terminal().print(
        f"sandbox environment {environment.root}: {len(environment.packages)} packages, lock {environment.digest[:12]}"
    )


def check(
    name: Annotated[str, typer.Option(help="Name of the environment.")] = "default",
) -> None:
    """Test the isolation of this machine afresh and run one program in it; fails if untrusted code cannot be isolated."""
    import tempfile

    from wmrl_envs.execution import ExecutionLimits, ProcessSandbox
    from wmrl_envs.execution.environment import load_environment
    from wmrl_envs.execution.selftest import tier_report

    console = Terminal(soft_wrap=True)
    environment = load_environment(name)
    console.print(f"environment {environment.root}: Python {environment.python_version}, lock {environment.digest[:12]}")
    for tier, failures in tier_report(environment, fresh=True).items():
        console.print(f"{tier}: {_verdict(failures)}")
    with tempfile.TemporaryDirectory() as folder, ProcessSandbox(environment.root, warm=False) as box:
        run = box.run("print('hello from the sandbox')", folder, ExecutionLimits(timeout_s=60))
    console.print(
        f"a program ran in {run.tier}: {run.status}, {1000 * run.wall_s:.0f} ms, {run.stdout.strip()!r}", markup=False
    )


def doctor() -> None:
    """Say what works on this machine, and what to do about what does not."""
    console = Terminal(soft_wrap=True)
    for line in (*_machine_lines(), _torch_line(), *_sandbox_lines(), _docker_line(), *_extra_lines(), *_libero_lines()):
        console.print(line, highlight=False)


def _verdict(failures: list[str]) -> str:
    from wmrl_envs.execution.selftest import PROBES

    if failures:
        return f"[yellow]does not isolate[/]: a solution can {escape(', '.join(failures))}"
    return f"[green]isolates[/]: no solution can {', '.join(PROBES)}"


def _machine_lines() -> list[str]:
    import psutil

    from wmrl_envs import __version__

    home = paths.home()
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free / 2**30
    space = "[green]enough[/]" if free >= 5 else "[yellow]little: 5 GiB are advisable[/]"
    memory = psutil.virtual_memory().total / 2**30
    return [
        f"wmrl {__version__}, Python {platform.python_version()} ({sys.executable})",
        f"machine: {platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory:.0f} GiB memory",
        f"home: {home}, {free:.0f} GiB free: {space}",
    ]


def _torch_line() -> str:
    """Torch, its devices and their memory; without torch, what it would be for."""
    if importlib.util.find_spec("torch") is None:
        return (
            "torch: [yellow]absent[/]; training and models in this process need it, environments do not "
            f"({escape(install_hint('train'))})"
        )
    import torch

    line = f"torch {torch.__version__}: [green]{torch.get_num_threads()} threads[/]"
    if not torch.cuda.is_available():
        return f"{line}, no CUDA device: models run on the CPU"
    devices = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        devices.append(f"{torch.cuda.get_device_name(index)} ({free / 2**30:.0f} of {total / 2**30:.0f} GiB free)")
    return f"{line}, CUDA {torch.version.cuda}: [green]{', '.join(devices)}[/]"


def _sandbox_lines() -> list[str]:
    from wmrl_envs.execution.environment import load_environment
    from wmrl_envs.execution.selftest import choose_tier, memory_words, tier_report

    try:
        environment = load_environment()
    except WmrlError as error:
        return [f"sandbox environment: [yellow]{escape(str(error))}[/]"]
    lines = [f"sandbox environment: [green]built[/], Python {environment.python_version}, {', '.join(environment.packages)}"]
    lines += [f"isolation by {tier}: {_verdict(failures)}" for tier, failures in tier_report(environment).items()]
    lines.append(f"memory of a program is limited by {escape(memory_words())}")
    try:
        lines.append(f"untrusted code runs in: [green]{choose_tier(environment)}[/]")
    except WmrlError as error:
        lines.append(f"untrusted code: [red]refused[/]. {escape(str(error))}")
    return lines


def _docker_line() -> str:
    from wmrl_envs.execution.docker import connect

    try:
        client = connect(None)
        version = client.version()["Version"]
        client.close()
        return f"docker: [green]daemon {version}[/]"
    except WmrlError as error:
        return f"docker (optional): [yellow]{escape(str(error))}[/]"


def _libero_lines() -> list[str]:
    from rich.markup import escape

    from wmrl_envs.envs.libero import check as check_libero

    if importlib.util.find_spec("libero") is None:
        return []
    return [
        f"LIBERO, {what}: {f'[green]{detail}[/]' if ok else f'[red]{escape(detail)}[/]'}" for what, ok, detail in check_libero()
    ]


def _extra_lines() -> list[str]:
    lines = []
    for extra, (modules, purpose) in _EXTRAS.items():
        missing = [module for module in modules.split() if importlib.util.find_spec(module) is None]
        hint = f"[yellow]without {', '.join(missing)}[/], which is for {purpose} ({escape(install_hint(extra))})"
        lines.append(f"extra {extra}: {hint if missing else '[green]installed[/]'}")
    return lines
