"""`wmrl import-minivla` and `wmrl grpo`: a published policy as a folder, and its GRPO in LIBERO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wmrl_envs.world_models.reward.frames import Form
    from wmrl_train.agents.vla.grpo import VLAGrpoConfig
    from wmrl_train.run.rundir import RunDirectory


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
    out: Annotated[Path, typer.Argument(help="Folder of the run: checkpoints/, metrics.jsonl, and policy/ at its end.")],
    policy: Annotated[Path, typer.Option(help="Folder of the policy to start from (`wmrl sft`).")],
    task: Annotated[str, typer.Option(help="Task index, name or instruction.")],
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
) -> None:
    """GRPO of a vision-language-action policy: groups from one initial state, success or a reward model's score, both corrections."""
    import json

    from wmrl_envs.envs.libero.catalog import index_or_name
    from wmrl_envs.errors import InvalidInput
    from wmrl_train.agents.vla.grpo import VLAGrpoConfig
    from wmrl_train.config import load_config
    from wmrl_train.run.rundir import RunDirectory

    config = VLAGrpoConfig(
        steps, groups, n, None if reward is None else anchors, lr=lr, temperature=temperature, epochs=epochs, seed=seed
    )
    simulation = {"task": index_or_name(task), "suite": suite, "init_states": init_states, "max_steps": max_steps,
                  "texture_size": texture_size, "mesh_faces": mesh_faces}  # fmt: skip
    folder = RunDirectory(out)
    folder.acquire()
    try:
        if folder.has_run and not resume:
            raise InvalidInput(f"{folder.path} holds a run already: go on with --resume, or choose another folder.")
        options: dict[str, Any] = {
            "run.dir": str(out.parent), "run.name": out.name, "run.seed": seed, "train.steps": steps, "train.save_every": save_every,
            "policy.model": str(policy), "policy.device": device, "libero.task": task, "libero.suite": suite, "libero.init_states": init_states,
            "libero.reward": reward, "libero.form": form, "libero.simulators": workers, "libero.max_steps": max_steps,
            "rollout.groups": groups, "rollout.group_size": n, "rollout.temperature": temperature, "optim.lr": lr, "optim.epochs": epochs,
            "anchors.fraction": 1.0 if reward is None else anchors / groups, "anchors.min_groups": groups if reward is None else anchors,
        }  # fmt: skip
        folder.config_file.write_text(
            load_config("libero", [f"{key}={json.dumps(value)}" for key, value in options.items()]).to_yaml()
        )
        run(
            folder, config, policy, reward, simulation, workers=workers, device=device, form=form, save_every=save_every, resume=resume
        )  # fmt: skip
    finally:
        folder.release()


def run(
    folder: RunDirectory,
    config: VLAGrpoConfig,
    policy: Path,
    reward: str | None,
    simulation: dict[str, Any],
    *,
    workers: int,
    device: str,
    form: str | None = None,
    save_every: int = 1,
    resume: bool = False,
) -> None:
    """Train the policy of a folder, in a run's directory whose lock is held. `simulation`: arguments of the environment."""
    from dataclasses import asdict

    import gymnasium
    from rich.console import Console

    import wmrl_envs  # noqa: F401
    from wmrl_envs.correction import Corrector
    from wmrl_envs.world_models.reward.frames import check_form
    from wmrl_train.agents.vla.grpo import train_grpo
    from wmrl_train.agents.vla.policy import VLAPolicy
    from wmrl_train.agents.vla.state import Checkpoints
    from wmrl_train.engines.transformers import resolve_device
    from wmrl_train.run.report import write_report

    settings = asdict(config) | simulation | {"reward": reward, "form": form, "policy": str(policy)}
    for name in ("steps", "minibatch"):  # change no step that was done
        del settings[name]
    checkpoints = Checkpoints(folder, settings, every=save_every, resume=resume)
    console, trained = Console(), checkpoints.policy(lambda: VLAPolicy.load(policy))
    trained.model.to(resolve_device(device))
    model = _reward_model(reward, None if form is None else check_form(form))
    options = simulation | {"image_size": trained.model.config.dino.image_size, "orientation": trained.orientation,
                            "action_chunk": trained.execute_horizon}  # fmt: skip
    envs = [gymnasium.make("LIBERO-Long-v0", **options) for _ in range(workers)]

    def keep(record: dict[str, Any]) -> None:
        episodes = record.pop("episodes")
        for episode in episodes:
            folder.append("rollouts.jsonl", episode)
            if episode["anchored"] and episode["predicted"] is not None:
                pair = {key: episode[key] for key in ("step", "task", "group", "predicted")} | {
                    "true": float(episode["success"])
                }
                folder.append("anchors.jsonl", pair)
        folder.append("metrics.jsonl", record | _by_source(episodes) | {"anchor/rho": record.get("rho")})
        shown = ", ".join(f"{name} {value:.3g}" for name, value in record.items() if name != "step")
        console.print(f"step {record['step']}: {shown}", highlight=False)

    corrector = Corrector() if model is not None else None
    try:
        train_grpo(trained, envs, config, world_model=model, corrector=corrector, on_step=keep, checkpoints=checkpoints)
    finally:
        for env in envs:
            env.close()
    console.print(
        f"wrote {trained.save(folder.path / 'policy')} and {write_report(folder.path)}", highlight=False, soft_wrap=True
    )


def _by_source(episodes: list[dict[str, Any]]) -> dict[str, float]:
    """Means of a step's rewards under the names of the glossary, as the report draws them."""
    means = {"executed": [float(e["success"]) for e in episodes if e["anchored"]]}
    means |= {name: [e[name] for e in episodes if e[name] is not None] for name in ("predicted", "calibrated")}
    return {f"reward/{name}": sum(values) / len(values) for name, values in means.items() if values}


def _reward_model(reward: str | None, form: Form | None) -> Any:
    if reward is None:
        return None
    if reward.startswith(("http://", "https://")):
        from wmrl_envs.world_models.reward.remote import RemoteRewardModel

        return RemoteRewardModel(reward, form=form or "potential")
    from wmrl_train.agents.vla.progress import ProgressModel

    model = ProgressModel.load(reward)
    model.form = form or model.form
    return model
