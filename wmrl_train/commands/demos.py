"""`wmrl demos`: record demonstrations with the scripted controllers, or convert LIBERO's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    app.command("demos")(demos)


def demos(
    out: Annotated[Path, typer.Argument(help="Folder of the LeRobot dataset to write.")],
    task: Annotated[list[str] | None, typer.Option(help="Task index, name or instruction; repeat for several.")] = None,
    suite: Annotated[str, typer.Option(help="LIBERO suite.")] = "libero_10",
    episodes: Annotated[int, typer.Option(min=1, help="Demonstrations a task.")] = 16,
    init_states: Annotated[str, typer.Option(help="train, unseen or all.")] = "train",
    image_size: Annotated[int, typer.Option(min=16, help="Pixels a side.")] = 224,
    wrist_image: Annotated[bool, typer.Option(help="Record the wrist camera too.")] = False,
    noise: Annotated[
        float, typer.Option(min=0, max=1, help="Perturb executed actions by this much (sd, in full actions).")
    ] = 0.05,
    orientation: Annotated[str, typer.Option(help="vertical, rot180 or none.")] = "vertical",
    texture_size: Annotated[
        int | None, typer.Option(help="Shrink textures (tests and laptops; not for reported numbers).")
    ] = None,
    source: Annotated[
        list[Path] | None, typer.Option("--from", help="Convert this LIBERO .hdf5 or LeRobot dataset instead of recording.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of initial states and noise.")] = 0,
) -> None:
    """Record scripted demonstrations of LIBERO tasks (or convert files) into a LeRobot dataset."""
    from wmrl_envs.envs.libero_long import check_orientation
    from wmrl_train.agents.vla.data.demonstrations import load_demonstrations
    from wmrl_train.agents.vla.data.lerobot import LeRobotWriter
    from wmrl_train.run.terminal import Terminal

    console = Terminal()
    turned = check_orientation(orientation)
    with LeRobotWriter(out) as writer:
        if source:
            for file in source:
                for demonstration in load_demonstrations(file, turned, convert=True):
                    writer.add(demonstration)
                console.print(f"{file}: done")
        else:
            options = {"suite": suite, "init_states": init_states, "image_size": image_size, "wrist_image": wrist_image}
            options |= {"orientation": turned, "texture_size": texture_size}
            for wanted in task or ["0", "1", "7"]:
                _record(writer, console, wanted, episodes, noise, seed, options)
    console.print(f"wrote {out}")


def _record(writer: Any, console: Any, wanted: str, episodes: int, noise: float, seed: int, options: dict[str, Any]) -> None:
    import gymnasium

    import wmrl_envs  # noqa: F401
    from wmrl_envs.envs.libero.catalog import index_or_name
    from wmrl_train.agents.vla.data.demonstrations import record

    env = gymnasium.make("LIBERO-Long-v0", task=index_or_name(wanted), action_chunk=1, **options)
    kept, attempts = 0, 0
    try:
        states = env.unwrapped.start_states.indices  # type: ignore[attr-defined]
        while kept < episodes and attempts < 2 * episodes:
            demonstration = record(env, init_state=states[attempts % len(states)], noise=noise, seed=seed + attempts)
            attempts += 1
            if demonstration.success:
                kept += 1
                writer.add(demonstration)
    finally:
        env.close()
    console.print(f"{demonstration.instruction}: kept {kept} successes of {attempts} episodes")
