"""`wmrl train-vq` and `wmrl sft`: from demonstrations to a vision-language-action policy."""

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
