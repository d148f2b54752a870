"""`wmrl eval` and `wmrl rescore`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from wmrl_envs.errors import InvalidInput
from wmrl_train.commands.options import refuse_options

_AGENT = (
    "demo, openai:URL, python:module:function (or :Class), or a model directory (a saved model, or the checkpoint of a run); "
    "for LIBERO the folder of a policy (`wmrl sft`), or python:module:function. An agent's own reset() is called at every "
    "episode."
)
_TASKS = (
    "A split (train, held_out, dsbench: the tasks of it that are prepared) or slugs with commas between (default: held_out); "
    "for LIBERO indices or names with commas between (default: all of the suite)."
)
_LIBERO = "LIBERO"  # heading of its options in the help
_ONLY_LIBERO = ("suite", "init_states", "execute_horizon", "max_steps", "texture_size", "mesh_faces", "videos", "device")
_ONLY_PROGRAMS = (
    "turns", "seed", "sandbox", "timeout_s", "cpu_s", "memory_mb", "scaffold", "max_rows", "hide_score", "data_dir",
    "temperature", "max_new_tokens", "model",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    app.command("eval")(evaluate)
    app.command("rescore")(rescore)


def evaluate(
    context: typer.Context,
    agent: Annotated[str, typer.Option(help=_AGENT)],
    env: Annotated[str, typer.Option(help="MLEDojo-v0, DSBench-v0 or LIBERO-Long-v0.")] = "MLEDojo-v0",
    tasks: Annotated[str | None, typer.Option(help=_TASKS)] = None,
    k: Annotated[
        int | None, typer.Option("--k", "-k", help="Episodes a task (default: 8), or in LIBERO an initial state (default: 1).")
    ] = None,
    turns: Annotated[int | None, typer.Option(help="Programs an episode (default: 4, demo: 1).")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Programs executed at a time (default: one a core); in LIBERO simulators at once.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where results go; an evaluation there is continued.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")] = False,
    seed: Annotated[int, typer.Option(help="Samples depend on seed, task, repeat and turn alone.")] = 0,
    sandbox: Annotated[str, typer.Option(help="auto, process, docker, ray or replay.")] = "auto",
    timeout_s: Annotated[float | None, typer.Option(help="Seconds a program may take (default: 1200, demo: its own).")] = None,
    cpu_s: Annotated[
        float | None, typer.Option(help="CPU seconds a program may take (default: no limit, demo: its own).")
    ] = None,
    memory_mb: Annotated[int | None, typer.Option(help="Memory of a program in MB (default: 4096, demo: its own).")] = None,
    scaffold: Annotated[
        str | None, typer.Option(help="sklearn: a prelude loads the data (default: none, demo: sklearn).")
    ] = None,
    max_rows: Annotated[int | None, typer.Option(help="Training rows the scaffold loads.")] = None,
    hide_score: Annotated[bool, typer.Option(help="Do not tell the agent its scores.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Prepared competitions (default: where `wmrl tasks prepare` puts them).")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of the samples of a model.")] = 1.0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Tokens an answer of a model (default: 4096, demo: its own).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model at openai:URL, where it serves several.")] = None,
    suite: Annotated[str, typer.Option(help="LIBERO suite.", rich_help_panel=_LIBERO)] = "libero_10",
    init_states: Annotated[
        str, typer.Option(help="train (first 16), unseen or all, or indices with commas between.", rich_help_panel=_LIBERO)
    ] = "all",
    execute_horizon: Annotated[
        int | None, typer.Option(help="Actions of a chunk to execute (default: the policy's).", rich_help_panel=_LIBERO)
    ] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Simulator steps an episode.", rich_help_panel=_LIBERO)] = 520,
    texture_size: Annotated[
        int | None, typer.Option(help="Shrink textures (tests; not for reported numbers).", rich_help_panel=_LIBERO)
    ] = None,
    mesh_faces: Annotated[
        int | None, typer.Option(help="Leave out larger meshes (tests; not for reported numbers).", rich_help_panel=_LIBERO)
    ] = None,
    device: Annotated[str, typer.Option(help="Of the policy: cpu, cuda, cuda:1, ...", rich_help_panel=_LIBERO)] = "cpu",
    videos: Annotated[
        int, typer.Option(min=0, help="Animations of successes and of failures a task.", rich_help_panel=_LIBERO)
    ] = 2,
) -> None:
    """Evaluate an agent: k really executed episodes a task (LIBERO: of every initial state, greedy), resumable after a kill."""
    _refuse_foreign(context, env)
    if env == "LIBERO-Long-v0":
        from wmrl_train.evaluation import eval_robots

        states, repeats = _init_states(init_states), 1 if k is None else k
        options = {"max_steps": max_steps, "texture_size": texture_size, "mesh_faces": mesh_faces}
        chosen = eval_robots.parse_tasks(tasks, suite)
        robot = eval_robots.RobotEval(agent, suite, chosen, states, repeats, videos, options, workers)
        eval_robots.run(robot, out=out, execute_horizon=execute_horizon, device=device, as_json=json_)
        return
    from wmrl_train.evaluation import eval_programs
    from wmrl_train.evaluation.folder import refuse_nothing_scored

    given: dict[str, Any] = {
        "max_turns": turns,
        "timeout_s": timeout_s,
        "cpu_s": cpu_s,
        "memory_mb": memory_mb,
        "scaffold": scaffold,
        "max_rows": max_rows,
        "hide_score": hide_score or None,
        "data_dir": None if data_dir is None else str(data_dir.expanduser().resolve()),
    }
    settings = eval_programs.Settings(
        agent=agent,
        tasks="held_out" if tasks is None else tasks,
        seed=seed,
        sandbox=sandbox,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        model=model,
        env={name: value for name, value in given.items() if value is not None},
    )
    result = eval_programs.run(settings, k=8 if k is None else k, out=out, workers=workers, as_json=json_)
    refuse_nothing_scored(result.trajectories)


def _init_states(text: str) -> str | tuple[int, ...]:
    """A split or an .npz as it is; else indices with commas between."""
    if text.endswith(".npz") or not ("," in text or text[:1].isdigit()):
        return text
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        raise InvalidInput(
            f"--init-states {text!r}: expected train, unseen or all, or indices with commas between such as 0,3,7."
        )
    return tuple(map(int, parts))


def _refuse_foreign(context: typer.Context, env: str) -> None:
    """One sentence for an unknown environment, or for an option that says nothing in this one."""
    foreign = {"MLEDojo-v0": _ONLY_LIBERO, "DSBench-v0": _ONLY_LIBERO, "LIBERO-Long-v0": _ONLY_PROGRAMS}
    if env not in foreign:
        raise InvalidInput(f"--env {env!r}: expected one of {', '.join(foreign)}.")
    refuse_options(context, foreign[env], f"says nothing in {env}: leave it out, or choose another --env.")


def rescore(
    folder: Annotated[Path, typer.Argument(help="Folder of an evaluation or of a training run.")],
    data_dir: Annotated[Path | None, typer.Option(help="Prepared competitions (default: those it was made with).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")] = False,
) -> None:
    """Grade stored submissions again with today's graders and boards; runs no program, changes no stored trajectory."""
    from wmrl_train.evaluation import rescore as module

    module.run(folder, data_dir=data_dir, as_json=json_)
