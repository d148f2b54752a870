"""`wmrl import-minivla` and `wmrl grpo`: a published policy as a folder, and its GRPO in LIBERO."""

from __future__ import annotations

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


def grpo(
    out: Annotated[Path, typer.Argument(help="Folder to write: policy/ (after every step) and metrics.jsonl.")],
    policy: Annotated[Path, typer.Option(help="Folder of the policy to start from (`wmrl sft`).")],
    task: Annotated[str, typer.Option(help="Task index, name or instruction.")],
    suite: Annotated[str, typer.Option(help="LIBERO suite.")] = "libero_10",
    init_states: Annotated[str, typer.Option(help="train, all, or an .npz of start states.")] = "train",
    reward: Annotated[
        str | None,
        typer.Option(help="A reward model: http://... (`wmrl serve-robometer`) or a ProgressModel's file; default: none."),
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
    device: Annotated[str, typer.Option(help="Of the policy: cpu, cuda, cuda:1, ...")] = "cpu",
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """GRPO of a vision-language-action policy: groups from one initial state, success or a reward model's score, both corrections."""
    import json

    import gymnasium
    from rich.console import Console

    import wmrl_envs  # noqa: F401
    from wmrl_envs.correction import Corrector
    from wmrl_train.agents.vla.grpo import VLAGrpoConfig, train_grpo
    from wmrl_train.agents.vla.policy import VLAPolicy

    console, trained = Console(), VLAPolicy.load(policy)
    trained.model.to(device)
    model = _reward_model(reward)
    config = VLAGrpoConfig(
        steps, groups, n, None if model is None else anchors, lr=lr, temperature=temperature, epochs=epochs, seed=seed
    )
    options: dict[str, Any] = {"suite": suite, "init_states": init_states, "max_steps": max_steps}
    options |= {"image_size": trained.model.config.dino.image_size, "orientation": trained.orientation}
    options |= {"action_chunk": trained.execute_horizon, "texture_size": texture_size, "mesh_faces": mesh_faces}
    envs = [gymnasium.make("LIBERO-Long-v0", task=int(task) if task.isdigit() else task, **options) for _ in range(workers)]
    out.mkdir(parents=True, exist_ok=True)

    def keep(record: dict[str, Any]) -> None:
        with (out / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        trained.save(out / "policy")
        shown = ", ".join(f"{name} {value:.3g}" for name, value in record.items() if name != "step")
        console.print(f"step {record['step']}: {shown}", highlight=False)

    try:
        train_grpo(trained, envs, config, world_model=model, corrector=Corrector() if model is not None else None, on_step=keep)
    finally:
        for env in envs:
            env.close()
    console.print(f"wrote {out / 'policy'}", highlight=False)


def _reward_model(reward: str | None) -> Any:
    if reward is None:
        return None
    if reward.startswith(("http://", "https://")):
        from wmrl_envs.world_models.remote import RemoteRewardModel

        return RemoteRewardModel(reward)
    from wmrl_train.agents.vla.progress import ProgressModel

    return ProgressModel.load(reward)
