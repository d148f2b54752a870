"""`wmrl import-minivla` and `wmrl grpo`: a published policy as a folder, and `wmrl train libero` with its settings as
options.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    app.command("import-minivla")(import_minivla)
    app.command("grpo")(grpo)


def import_minivla(
    out: Annotated[Path, typer.Argument(help="Folder of the policy to write.")],
    checkpoint: Annotated[Path, typer.Option(help="Prismatic's .pt file.")],
    vq: Annotated[Path, typer.Option(help="Folder of the VQ-BeT quantizer.")],
    statistics: Annotated[Path, typer.Option(help="The run's dataset_statistics.json.")],
    tokenizer: Annotated[Path, typer.Option(help="Folder of Qwen2.5-0.5B's tokenizer.")],
    key: Annotated[str | None, typer.Option(help="Data set in the statistics, where there are several.")] = None,
) -> None:
    """Turn the files of a published MiniVLA into a policy folder for `wmrl sft`, `wmrl grpo` and `wmrl eval`."""
    from wmrl_train.agents.vla.checkpoint import load_minivla

    typer.echo(f"wrote {load_minivla(checkpoint, vq, statistics, tokenizer, key=key).save(out)}")


#: option -> the key of the configuration it sets
_KEYS = {
    "policy": "policy.model", "task": "libero.task", "suite": "libero.suite", "init_states": "libero.init_states",
    "reward": "libero.reward", "form": "libero.form", "steps": "train.steps", "groups": "rollout.groups",
    "n": "rollout.group_size",
    "epochs": "optim.epochs", "lr": "optim.lr", "temperature": "rollout.temperature", "workers": "libero.simulators",
    "max_steps": "libero.max_steps", "texture_size": "libero.options.texture_size", "mesh_faces": "libero.options.mesh_faces",
    "device": "policy.device", "seed": "run.seed", "save_every": "train.save_every",
}  # fmt: skip


def grpo(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder of the run: checkpoints/, metrics.jsonl, and policy/ at its end.")],
    policy: Annotated[Path, typer.Option(help="Folder of the policy to start from (`wmrl sft`).")],
    task: Annotated[str, typer.Option(help="Task index, name or instruction.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Further settings of `wmrl train libero`, such as eval.k=0.", metavar="[KEY=VALUE]..."),
    ] = None,
    suite: Annotated[str, typer.Option(help="LIBERO suite.")] = "libero_10",
    init_states: Annotated[str, typer.Option(help="train, all, or an .npz of start states.")] = "train",
    reward: Annotated[
        str | None,
        typer.Option(help="A reward model: http://... (`wmrl serve-robometer`) or a ProgressModel's file; default: none."),
    ] = None,
    form: Annotated[
        str | None, typer.Option(help="Of the dense reward: potential (default), final, max or success; a file has its own.")
    ] = None,
    anchors: Annotated[int, typer.Option(min=0, help="Groups a step that the simulator pays too (with --reward).")] = 1,
    steps: Annotated[int, typer.Option(min=1)] = 40,
    groups: Annotated[int, typer.Option(min=1, help="Initial states a step.")] = 8,
    n: Annotated[int, typer.Option(min=2, help="Episodes a group.")] = 8,
    epochs: Annotated[int, typer.Option(min=1, help="Updates a step.")] = 1,
    lr: Annotated[float, typer.Option(min=0)] = 1e-4,
    temperature: Annotated[float, typer.Option(min=0.01)] = 1.0,
    workers: Annotated[int, typer.Option(min=1, help="Simulators at once, 1 to 2.5 GB each.")] = 2,
    max_steps: Annotated[int, typer.Option(min=1, help="Simulator steps an episode.")] = 520,
    texture_size: Annotated[int | None, typer.Option(help="Shrink textures (tests; not for reported numbers).")] = None,
    mesh_faces: Annotated[int | None, typer.Option(help="Leave out larger meshes (tests; not for reported numbers).")] = None,
    device: Annotated[str, typer.Option(help="Of the policy: auto, cpu, cuda, cuda:1, ...")] = "auto",
    seed: Annotated[int, typer.Option()] = 0,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in OUT.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Start anew; an earlier run in OUT is set aside.")] = False,
) -> None:
    """GRPO of a vision-language-action policy: groups from one initial state, success or a reward model's score, both
    corrections.
    """
    from wmrl_envs.envs.libero.catalog import index_or_name
    from wmrl_train.commands.train import train

    options = context.params | {"task": index_or_name(task)}
    given = [name for name in _KEYS if options[name] is not None or name == "reward"]  # no reward model is a choice too
    if resume:  # of what was not said again the run's own settings hold
        given = [name for name in given if _said(context, name)]
    settings = {_KEYS[name]: options[name] for name in given}
    if not resume or _said(context, "anchors") or _said(context, "groups"):
        fraction = 1.0 if reward is None else min(1.0, anchors / groups)
        settings |= {"anchors.fraction": fraction, "anchors.min_groups": groups if reward is None else anchors}
    train(
        None if resume else "libero", [*(f"{key}={_yaml(value)}" for key, value in settings.items()), *(overrides or [])],
        resume=resume, again=again, run_dir=out,
    )  # fmt: skip


def _said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _yaml(value: Any) -> str:
    """A value as an override that is read back as it is."""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
