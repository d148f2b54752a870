"""The floors of the house: which folder may import which. The test of the import rule and the picture in docs/architecture.md
read it.

A file imports from its own folder and from lower floors, never upwards, and no two files import each other. `python
docs/scripts/floors.py` draws the picture again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: package -> floors from the ground up; a name is a folder or a file of the package. "" is the ground: its single files.
FLOORS: dict[str, list[list[str]]] = {
    "wmrl_envs": [
        ["outcome", "errors", "info", "spaces", "engine", "paths", "servers", "text", "context", "chain"],
        ["correction", "execution"],
        ["tasks"],
        ["world_models", "envs"],
        ["anchoring"],
        ["wrappers"],
    ],
    "wmrl_train": [
        ["config"],
        ["episodes"],
        ["run", "learn"],
        ["engines", "agents"],
        ["evaluation", "training", "fidelity", "warm_start"],
        ["integrations"],
        ["commands"],
        ["cli"],
    ],
}

#: What a room is, in the picture.
WORDS = {
    "outcome": "records and words that everything else exchanges",
    "correction": "the paper's equations in numpy",
    "execution": "running a solution for real: sandboxes",
    "tasks": "a competition on disk, its grading and feedback",
    "world_models": "predicting instead",
    "envs": "MLEDojo, DSBench, LIBERO-Long",
    "anchoring": "where a prediction meets an execution",
    "wrappers": "WorldModelEnv, AnchoredVecEnv, Sb3VecEnv",
    "config": "the configuration, without torch",
    "episodes": "turns, trajectories, groups; rollout",
    "run": "run folder, checkpoints, logs, report",
    "learn": "the GRPO objective and its learners",
    "engines": "where completions come from",
    "agents": "observation to prompt, completion to action; vla/",
    "evaluation": "policies measured by real execution",
    "training": "the one Trainer",
    "fidelity": "how well a world model predicts",
    "warm_start": "the small code-writing policy",
    "integrations": "TRL, verl, Stable-Baselines3",
    "commands": "the command line",
}


@dataclass(frozen=True)
class Import:
    """`line` of the file `source` imports the module `target` (both dotted)."""

    source: str
    target: str
    line: int


def modules(package: str) -> dict[str, Path]:
    """Dotted name -> file, of every module of the package."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> list[Import]:
    """Every import of a module of ours by a module of ours: also inside functions, also for types only."""
    known = {name: path for package in FLOORS for name, path in modules(package).items()}
    found = []
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in (n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))):
            found += [Import(name, target, node.lineno) for target in _targets(node, known) if target != name]
    return found


def _targets(node: ast.Import | ast.ImportFrom, known: dict[str, Path]) -> Iterator[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and node.module:
        names = [
            f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in known else node.module for alias in node.names
        ]
    yield from (name for name in names if name in known)


def floor(module: str) -> tuple[int, int]:
    """(building, floor) of a module: wmrl_envs is below wmrl_train.

    `wmrl_envs/__init__` shows names of every floor and is its roof; `wmrl_train/__init__` knows the version only and is its
    ground.
    """
    package, _, rest = module.partition(".")
    building = list(FLOORS).index(package)
    room = rest.partition(".")[0]
    for number, rooms in enumerate(FLOORS[package]):
        if room in rooms:
            return building, number
    if not room:
        return building, len(FLOORS[package]) if package == "wmrl_envs" else 0
    raise LookupError(f"{module}: the room {room!r} has no floor; give it one in docs/scripts/floors.py.")


def upward() -> list[str]:
    """Imports that climb to a higher floor."""
    return [f"{one.source}:{one.line} imports {one.target}" for one in imports() if floor(one.target) > floor(one.source)]


def circles() -> list[list[str]]:
    """Groups of modules that import each other, directly or around a corner. A folder's `__init__` is not followed."""
    graph: dict[str, set[str]] = {}
    for one in imports():
        graph.setdefault(one.source, set()).add(one.target)
    faces = {name for package in FLOORS for name, path in modules(package).items() if path.name == "__init__.py"}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other in faces:
                continue
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == node:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    for node in list(graph):
        if node not in index and node not in faces:
            visit(node)
    return found


def rooms_in_a_circle() -> list[tuple[str, str]]:
    """Pairs of rooms of one building that import each other, by whatever files."""
    room = {one: ".".join(one.split(".")[:2]) for i in imports() for one in (i.source, i.target)}
    arrows = {(room[i.source], room[i.target]) for i in imports() if room[i.source] != room[i.target] and "." in room[i.target]}
    return sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows)


def draw() -> str:
    """The floors as an SVG: the ground at the bottom, a building for each package."""
    width, height, gap, label = 1240, 54, 8, 250
    rows = [(package, rooms) for package in FLOORS for rooms in FLOORS[package]][::-1]
    parts = []
    for i, (package, rooms) in enumerate(rows):
        y = 20 + i * (height + gap) + (24 if package == "wmrl_envs" else 0)
        colour = "#dbeafe" if package == "wmrl_train" else "#dcfce7"
        shown = [room for room in rooms if room in WORDS] or rooms
        each = (width - label - 40) / len(shown)
        parts.append(
            f'<text x="20" y="{y + 32}" font-size="15" fill="#334155">{package}, floor {_number(package, rooms)}</text>'
        )
        for k, room in enumerate(shown):
            x = label + k * each
            name = "ground: " + ", ".join(rooms[:4]) + ", ..." if room == "outcome" else room
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{each - gap:.0f}" height="{height}" rx="6" '
                f'fill="{colour}" stroke="#64748b"/>'
                f'<text x="{x + 10:.0f}" y="{y + 22}" font-size="15" font-weight="600" fill="#0f172a">{name}</text>'
                f'<text x="{x + 10:.0f}" y="{y + 42}" font-size="12" fill="#334155">{WORDS.get(room, "")}</text>'
            )
    total = 20 + len(rows) * (height + gap) + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" font-family="sans-serif" role="img">'
        "<title>The floors: a file imports from its own folder and from lower floors</title>"
        '<rect width="100%" height="100%" fill="white"/>' + "".join(parts) + "</svg>\n"
    )


def _number(package: str, rooms: list[str]) -> int:
    return FLOORS[package].index(rooms)


if __name__ == "__main__":
    (ROOT / "docs" / "figures" / "floors.svg").write_text(draw(), encoding="utf-8")
