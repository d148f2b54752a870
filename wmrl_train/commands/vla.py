"""`wmrl train-vq` and `wmrl sft`: learning from demonstrations, of robots and of conversations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wmrl_train.commands.options import refuse_options

if TYPE_CHECKING:
    from wmrl_train.run.rundir import RunDirectory

_DATA = "LeRobot datasets (folders) or LIBERO .hdf5 files."
_CONVERSATIONS = (
    "JSONL files of conversations ({messages} or {prompt, completion}) and directories of runs, whose best episodes are "
    "imitated."
)
_LANGUAGE, _VLA = "Language models (--model)", "VLA policies"  # headings of the help
_ONLY_LANGUAGE = ("max_tokens", "lora_rank", "dtype", "device", "top", "predicted")
_ONLY_VLA = ("init", "vq_steps", "orientation", "convert")
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
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 0,
) -> None:
    """Train the residual-VQ action quantizer on demonstrations; their action statistics go beside it."""
    import json

    import numpy as np
    import torch

    from wmrl_envs.errors import InvalidInput
    from wmrl_train.agents.vla.actions import ActionNormalizer
    from wmrl_train.agents.vla.data.demonstrations import action_statistics, load_demonstrations
    from wmrl_train.agents.vla.vq import VQConfig, fit
    from wmrl_train.run.outputs import require_file
    from wmrl_train.run.terminal import Terminal

    config = VQConfig(horizon=horizon, groups=groups, codes=codes, latent=latent)
    if out.suffix != ".safetensors":
        raise InvalidInput(f"{out}: expected the name of a .safetensors file, for example vq.safetensors.")
    for file in (out, out.with_name("dataset_statistics.json")):  # before the training that they are the result of
        require_file(file)
    demonstrations = [d for path in data for d in load_demonstrations(path, convert=True)]
    statistics = action_statistics(demonstrations)
    normalizer = ActionNormalizer.of(statistics)
    chunks = np.concatenate([normalizer.normalize(d.chunks(horizon)) for d in demonstrations])
    model = fit(chunks, config, steps=steps, seed=seed)
    model.save(out)
    out.with_name("dataset_statistics.json").write_text(json.dumps({"demonstrations": {"action": statistics}}, indent=2))
    x = torch.from_numpy(chunks)
    error = (model.decode(model.encode(x)) - x).abs().mean().item()
    Terminal().print(f"wrote {out}: mean absolute error {error:.4f} of normalised actions on {len(chunks)} chunks")


def sft(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder to write: of the run with --model, else of the policy.")],
    data: Annotated[list[Path], typer.Option(help=f"With --model: {_CONVERSATIONS} Without: {_DATA} Repeat for several.")],
    model: Annotated[
        str | None, typer.Option(help="Language model to fine-tune: a directory, demo or smollm2. Without it: a VLA policy.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Default: 100 with --model, else 2000.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Examples a step (default: 16 with --model, else 32).")] = None,
    lr: Annotated[float | None, typer.Option(min=0, help="Learning rate (default: 1e-5 with --model, else 5e-4).")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longer rows are cut.", rich_help_panel=_LANGUAGE)] = 4096,
    lora_rank: Annotated[
        int | None, typer.Option(min=1, help="Train adapters of this rank only.", rich_help_panel=_LANGUAGE)
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16 (autocast).", rich_help_panel=_LANGUAGE)] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...", rich_help_panel=_LANGUAGE)] = "auto",
    top: Annotated[
        float, typer.Option(help="Of a run: share of each task's episodes to imitate.", rich_help_panel=_LANGUAGE)
    ] = 0.25,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="Of a run: also episodes that were only predicted.", rich_help_panel=_LANGUAGE)
    ] = False,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 50,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in OUT.")] = False,
    init: Annotated[
        Path | None, typer.Option(help="Continue from this policy folder instead of a new small one.", rich_help_panel=_VLA)
    ] = None,
    vq_steps: Annotated[
        int, typer.Option(min=1, help="Training steps of a new policy's action quantizer.", rich_help_panel=_VLA)
    ] = 2000,
    orientation: Annotated[str, typer.Option(help="vertical, rot180 or none.", rich_help_panel=_VLA)] = "vertical",
    convert: Annotated[bool, typer.Option(help=_CONVERT, rich_help_panel=_VLA)] = False,
) -> None:
    """Supervised fine-tuning: of a language model on conversations or a run's best episodes (--model), or of a VLA policy on
    demonstrations (a new policy is a small one, for a CPU).
    """
    if model is not None:
        refuse_options(context, _ONLY_VLA, "says nothing for a language model: leave out --model, or this option.")
        given = {
            "steps": steps,
            "batch": batch,
            "lr": lr,
            "lora": None if lora_rank is None else {"r": lora_rank, "alpha": 2 * lora_rank},
        }
        settings = {name: value for name, value in given.items() if value is not None} | {
            "model": model, "data": list(map(str, data)), "seed": seed, "max_tokens": max_tokens, "dtype": dtype,
            "device": device,
            "top": top, "predicted": predicted, "save_every": save_every,
        }  # fmt: skip
        _sft_language(settings, out, resume)
        return
    refuse_options(context, _ONLY_LANGUAGE, "needs --model, the language model to fine-tune.")
    from wmrl_train.run.rundir import RunDirectory

    folder = RunDirectory(out)
    folder.acquire()
    try:
        _sft_vla(
            folder, data, init, steps or 2000, batch or 32, 5e-4 if lr is None else lr, vq_steps, orientation, convert, seed,
            save_every, resume
        )  # fmt: skip
    finally:
        folder.release()


def _sft_language(settings: dict[str, Any], out: Path, resume: bool) -> None:
    from pydantic import ValidationError

    from wmrl_envs.errors import InvalidInput
    from wmrl_train.run.terminal import Terminal
    from wmrl_train.training import sft

    console = Terminal(stderr=True)
    try:
        config = sft.SftConfig(**settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]).replace("_", "-")
        raise InvalidInput(f"--{name} {first['input']!r}: {first['msg'].lower()}.") from None

    def report(step: int, values: dict[str, float]) -> None:
        if step == 1 or step % 10 == 0 or step == config.steps:
            console.print(f"step {step} of {config.steps}: loss {values['loss']:.3f}", highlight=False)

    result = sft.run(config, out, resume=resume, on_step=report, on_data=lambda data: console.print(str(data), highlight=False))
    console.print(f"wrote {result}: a model for policy.model and `wmrl eval --agent`", highlight=False, soft_wrap=True)


def _sft_vla(
    folder: RunDirectory, data: list[Path], init: Path | None, steps: int, batch: int, lr: float, vq_steps: int,
    orientation: str, convert: bool, seed: int, save_every: int, resume: bool,
) -> None:  # fmt: skip
    from wmrl_envs.envs.libero_long import check_orientation
    from wmrl_envs.errors import InvalidInput
    from wmrl_train.agents.vla.data.demonstrations import load_demonstrations
    from wmrl_train.agents.vla.imitate import new_policy, train
    from wmrl_train.agents.vla.policy import VLAPolicy
    from wmrl_train.run.fitting import Fitting
    from wmrl_train.run.terminal import Terminal

    console = Terminal()
    turned = check_orientation(orientation)
    for path in data:
        if path.suffix in (".jsonl", ".json"):
            raise InvalidInput(f"{path} holds conversations: name the language model to fine-tune with --model.")
    demonstrations = [d for path in data for d in load_demonstrations(path, turned, convert=convert)]
    settings = {"data": list(map(str, data)), "init": str(init), "steps": steps, "batch": batch, "lr": lr, "vq_steps": vq_steps,
                "orientation": orientation, "convert": convert, "seed": seed}  # fmt: skip
    fitting = Fitting(folder, settings, every=save_every, resume=resume)
    begin = fitting.policy or init
    policy = VLAPolicy.load(begin) if begin else new_policy(demonstrations, vq_steps=vq_steps, seed=seed)

    def report(step: int, loss: float) -> None:
        folder.append("metrics.jsonl", {"step": step, "loss": loss})
        if step == 1 or step % 100 == 0 or step == steps:
            console.print(f"step {step} of {steps}: loss {loss:.3f}", highlight=False)

    train(policy, demonstrations, steps=steps, batch=batch, lr=lr, seed=seed, on_step=report, fitting=fitting)
    console.print(
        f"wrote {policy.save(folder.path)} from {len(demonstrations)} demonstrations", highlight=False, soft_wrap=True
    )
