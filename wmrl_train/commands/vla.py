"""`wmrl train-vq`, `wmrl sft` and `wmrl eval-libero`: from demonstrations to an evaluated vision-language-action policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_DATA = "LeRobot datasets (folders) or LIBERO .hdf5 files."
_CONVERT = "Turn pictures that were recorded in another orientation."


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    app.command("train-vq")(train_vq)
    app.command("sft")(sft)
    app.command("eval-libero")(eval_libero)


def train_vq(
    out: Annotated[Path, typer.Argument(help="File to write (.safetensors).")],
    data: Annotated[list[Path], typer.Option(help=_DATA)],
    steps: Annotated[int, typer.Option(min=1)] = 5000,
    horizon: Annotated[int, typer.Option(min=1, help="Actions a chunk.")] = 8,
    groups: Annotated[int, typer.Option(min=1, help="Codes a chunk.")] = 7,
    codes: Annotated[int, typer.Option(min=2, help="Values of a code.")] = 128,
    latent: Annotated[int, typer.Option(min=1)] = 512,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train the residual-VQ action quantizer on demonstrations; their action statistics go beside it."""
    import json

    import numpy as np
    import torch
    from rich.console import Console

    from wmrl_train.agents.vla.actions import ActionNormalizer
    from wmrl_train.agents.vla.demonstrations import action_statistics, load_demonstrations
    from wmrl_train.agents.vla.vq import VQConfig, fit

    demonstrations = [d for path in data for d in load_demonstrations(path, convert=True)]
    statistics = action_statistics(demonstrations)
    normalizer = ActionNormalizer.of(statistics)
    chunks = np.concatenate([normalizer.normalize(d.chunks(horizon)) for d in demonstrations])
    model = fit(chunks, VQConfig(horizon=horizon, groups=groups, codes=codes, latent=latent), steps=steps, seed=seed)
    model.save(out)
    out.with_name("dataset_statistics.json").write_text(json.dumps({"demonstrations": {"action": statistics}}, indent=2))
    x = torch.from_numpy(chunks)
    error = (model.decode(model.encode(x)) - x).abs().mean().item()
    Console().print(f"wrote {out}: mean absolute error {error:.4f} of normalised actions on {len(chunks)} chunks")


def sft(
    out: Annotated[Path, typer.Argument(help="Folder of the policy to write.")],
    data: Annotated[list[Path], typer.Option(help=_DATA)],
    init: Annotated[Path | None, typer.Option(help="Continue from this policy folder instead of a new small one.")] = None,
    steps: Annotated[int, typer.Option(min=1)] = 2000,
    batch: Annotated[int, typer.Option(min=1)] = 32,
    lr: Annotated[float, typer.Option(min=0)] = 5e-4,
    vq_steps: Annotated[int, typer.Option(min=1, help="Training steps of a new policy's action quantizer.")] = 2000,
    orientation: Annotated[str, typer.Option(help="vertical, rot180 or none.")] = "vertical",
    convert: Annotated[bool, typer.Option(help=_CONVERT)] = False,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Supervised fine-tuning of a vision-language-action policy on demonstrations (a new policy is a small one, for a CPU)."""
    from rich.console import Console

    from wmrl_envs.envs.libero_long import check_orientation
    from wmrl_train.agents.vla.demonstrations import load_demonstrations
    from wmrl_train.agents.vla.policy import VLAPolicy
    from wmrl_train.agents.vla.sft import new_policy, train

    console = Console()
    turned = check_orientation(orientation)
    demonstrations = [d for path in data for d in load_demonstrations(path, turned, convert=convert)]
    policy = VLAPolicy.load(init) if init else new_policy(demonstrations, vq_steps=vq_steps, seed=seed)

    def report(step: int, loss: float) -> None:
        if step % 100 == 0:
            console.print(f"step {step}: loss {loss:.3f}")

    losses = train(policy, demonstrations, steps=steps, batch=batch, lr=lr, seed=seed, on_step=report)
    policy.save(out)
    console.print(f"wrote {out}: loss {losses[-1]:.3f} on {len(demonstrations)} demonstrations")


def eval_libero(
    policy: Annotated[Path, typer.Argument(help="Folder of a policy (`wmrl sft`).")],
    out: Annotated[Path, typer.Option(help="Where results go; an evaluation there is continued.")],
    task: Annotated[list[str] | None, typer.Option(help="Task index or name; repeat for several (default: all ten).")] = None,
    suite: Annotated[str, typer.Option(help="LIBERO suite.")] = "libero_10",
    init_states: Annotated[str, typer.Option(help="train, unseen or all.")] = "all",
    repeats: Annotated[int, typer.Option(min=1, help="Episodes an initial state.")] = 8,
    execute_horizon: Annotated[int | None, typer.Option(help="Actions of a chunk to execute (default: the policy's).")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Simulator steps an episode.")] = 520,
    texture_size: Annotated[int | None, typer.Option(help="Shrink textures (tests; not for reported numbers).")] = None,
) -> None:
    """Greedy evaluation on LIBERO: seen, unseen and overall success with Wilson intervals, best@k, all@k, animations."""
    from dataclasses import replace

    from rich.console import Console

    from wmrl_train.agents.vla import eval_run
    from wmrl_train.agents.vla.policy import VLAPolicy

    loaded = VLAPolicy.load(policy)
    if execute_horizon is not None:
        loaded = replace(loaded, execute_horizon=execute_horizon)
    size = loaded.model.config.dino.image_size
    env = {"image_size": size, "orientation": loaded.orientation, "texture_size": texture_size, "max_steps": max_steps}
    wanted = tuple(int(t) if t.isdigit() else t for t in task) if task else tuple(range(10))
    settings = eval_run.LiberoEval(suite=suite, tasks=wanted, init_states=init_states, repeats=repeats, env=env)
    report = eval_run.run(loaded, settings, out)
    console = Console()
    console.print(eval_run.table(report))
    for name, rate in report.rates.items():
        console.print(f"{name}: {rate}")
    console.print(f"versions: {report.versions}; wrote {out}")
