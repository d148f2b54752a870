"""What a step is recorded as: scalars for `metrics.jsonl`, lines for `rollouts.jsonl` and `anchors.jsonl`, the cost ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from wmrl_envs.anchoring.memory import program_key
from wmrl_train.episodes.lanes import LaneTime
from wmrl_train.episodes.records import Group, Turn

FEEDBACK_CHARACTERS = 2000  # kept of a feedback text in rollouts.jsonl


@dataclass
class Ledger:
    """Cost of a run so far. Executions of evaluations are not in it.

    Attributes:
        executions_paid: programs really run. executions_cached: answered from the cache of earlier runs of the same program.
        executions_distinct: different programs of a task among the paid and the cached ones.
        executions_avoided: programs that were only predicted. execution_s: wall clock of the paid ones, summed.
        *_cpu_s: CPU seconds. Generation and learning count all threads of this process while they run, execution the programs;
            `predicted_by_execution_cpu_s` of them went into predictions (low fidelity).
        tokens: sampled. dropped_groups: lost to infrastructure failures.
    """

    executions_paid: int = 0
    executions_cached: int = 0
    executions_distinct: int = 0
    executions_avoided: int = 0
    execution_s: float = 0.0
    generate_cpu_s: float = 0.0
    predict_cpu_s: float = 0.0
    execute_cpu_s: float = 0.0
    predicted_by_execution_cpu_s: float = 0.0
    learn_cpu_s: float = 0.0
    tokens: int = 0
    dropped_groups: int = 0

    def __post_init__(self) -> None:
        self._programs: set[tuple[str, str]] = set()

    def recall(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        """Know the programs of a resumed run again, from its `rollouts.jsonl`."""
        turns = ((r["task"], t) for r in rollouts for t in r.get("turns", ()))  # an episode of a simulator has none
        ran = ((task, t["code"]) for task, t in turns if t["status"] is not None and t["problem"] is None)
        self._programs = {(task, program_key(code)) for task, code in ran if code}

    def add(self, groups: Sequence[Group], lanes: Mapping[str, LaneTime], learn_cpu_s: float) -> None:
        """Account for one step."""
        for group in groups:
            self.dropped_groups += group.failure is not None
            for turn in _turns(group):
                self.tokens += turn.completion_tokens
                self.predicted_by_execution_cpu_s += turn.predicted_cpu_s
                if turn.problem is not None:
                    continue
                ran = turn.status is not None
                if ran and turn.code and group.failure is None:  # as in rollouts.jsonl
                    self._programs.add((group.plan.task, program_key(turn.code)))
                self.executions_avoided += not ran
                self.executions_cached += ran and turn.cached
                self.executions_paid += ran and not turn.cached
                self.execution_s += turn.execution_s if ran and not turn.cached else 0.0
        self.executions_distinct = len(self._programs)
        self.generate_cpu_s += lanes["generate"].cpu_s
        self.predict_cpu_s += lanes["predict"].cpu_s
        self.execute_cpu_s += lanes["execute"].cpu_s
        self.learn_cpu_s += learn_cpu_s

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def of_step(groups: Sequence[Group], rewards: np.ndarray, reward_mode: str) -> dict[str, float]:
    """Scalars of the rewards and rollouts of a step; a quantity without data is absent.

    Args:
        groups: m usable groups, of n trajectories each.
        rewards: (m, n), true on anchors and calibrated elsewhere.
        reward_mode: how a trajectory's scores make its reward, as in `tasks.reward_mode`.
    """
    values: dict[str, float] = {
        "groups/used": float(len(groups)),
        "groups/anchors": float(sum(g.plan.anchored for g in groups)),
    }
    if not groups:
        return values
    anchored = np.array([g.plan.anchored for g in groups])
    values |= {"reward/mean": float(rewards.mean()), "reward/group_std": float(rewards.std(axis=1).mean()),
               "groups/zero_range": float((np.ptp(rewards, axis=1) < 1e-9).mean())}  # fmt: skip
    executed = anchored[:, None] | np.array([[any(turn.picked for turn in t.turns) for t in g.trajectories] for g in groups])
    if executed.any():
        values["anchor/executed_members"] = float(executed.sum())
        values["reward/executed"] = float(rewards[executed].mean())
        pairs = np.array([pair for g in groups for pair in g.pairs()])
        if len(pairs):
            values["anchor/predicted"] = float(pairs[:, 0].mean())
            values["anchor/true"] = float(pairs[:, 1].mean())
            values["anchor/abs_error"] = float(np.abs(pairs[:, 0] - pairs[:, 1]).mean())
    if (~anchored).any():
        values["reward/calibrated"] = float(rewards[~anchored].mean())
        values["reward/predicted"] = float(np.mean([g.scores("predicted", reward_mode) for g in groups if not g.plan.anchored]))
    turns = [turn for group in groups for turn in _turns(group)]
    values |= {
        "rollout/turns": len(turns) / max(sum(len(g.trajectories) for g in groups), 1),
        "rollout/completion_tokens": float(np.mean([t.completion_tokens for t in turns])) if turns else 0.0,
        "rollout/cut_off": float(np.mean([t.finish == "length" for t in turns])) if turns else 0.0,
    }
    if any(t.steps for t in turns):
        values |= _of_robots(groups)
    else:
        values["rollout/distinct"] = len({t.code for t in turns}) / max(len(turns), 1)
    values["rollout/predicted_ok"] = float(np.mean([t.predicted_status == "ok" for t in turns])) if turns else 0.0
    for status, count in Counter(t.status for t in turns if t.status is not None).items():
        values[f"status/{status}"] = float(count)
    return values


def _of_robots(groups: Sequence[Group]) -> dict[str, float]:
    """Steps and success of all episodes, whether or not their success is used; the latter also by task, of several."""
    success: dict[str, list[float]] = {}
    for group in groups:
        success.setdefault(group.plan.task, []).extend(float(turn.raw_score or 0.0) for turn in _turns(group))
    values = {
        "rollout/steps": float(np.mean([turn.steps for group in groups for turn in _turns(group)])),
        "rollout/success": float(np.mean([value for found in success.values() for value in found])),
    }
    return values | ({f"success/{task}": float(np.mean(found)) for task, found in success.items()} if len(success) > 1 else {})


def rollout_records(
    step: int, groups: Sequence[Group], advantages: np.ndarray, rewards: np.ndarray
) -> Iterator[dict[str, Any]]:
    """One line an episode: its turns, and its tokens, of which `sampled` are the agent's own (spans of positions)."""
    for g, group in enumerate(groups):
        for member, trajectory in enumerate(group.trajectories):
            turns = [asdict(t) | {"feedback": t.feedback[:FEEDBACK_CHARACTERS]} for t in trajectory.turns]
            yield {
                "step": step, "group": group.plan.id, "member": member, "task": group.plan.task,
                "anchored": group.plan.anchored,
                "propensity": group.plan.propensity, "sampled_at_step": group.plan.step + 1, "reward": float(rewards[g,
                member]),
                "advantage": float(advantages[g, member]), "turns": turns,
                "rows": [{"ids": row.ids, "sampled": _spans(row.sampled)} for row in trajectory.rows],
            } | ({} if group.start is None else {"start": group.start})  # fmt: skip


def anchor_records(step: int, groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """One line a pair of the anchor groups."""
    for group in groups:
        for member, trajectory in enumerate(group.trajectories):
            for number, turn in enumerate(trajectory.turns):
                if turn.predicted is not None and turn.true is not None and not turn.remembered:
                    yield {
                        "step": step, "group": group.plan.id, "member": member, "turn": number, "task": group.plan.task,
                        "propensity": group.plan.propensity if turn.propensity is None else turn.propensity,
                        "picked": turn.picked,
                        "predicted": turn.predicted, "calibrated": turn.calibrated,
                        "true": turn.true, "predicted_status": turn.predicted_status, "status": turn.status,
                        "wall_s": turn.execution_s, "cpu_s": turn.execution_cpu_s, "cached": turn.cached,
                    }  # fmt: skip


def sample_table(groups: Sequence[Group], rewards: np.ndarray, rows: int = 4) -> list[dict[str, Any]]:
    """The best, the worst and some solutions between them, for a look at what is being written."""
    flat = [
        (float(rewards[g, i]), group, t) for g, group in enumerate(groups) for i, t in enumerate(group.trajectories) if t.turns
    ]
    flat.sort(key=lambda entry: -entry[0])
    chosen = [flat[round(i)] for i in np.linspace(0, len(flat) - 1, min(rows, len(flat)))]
    return [
        {"task": group.plan.task, "reward": reward, "source": "executed" if group.plan.anchored else "predicted",
         "status": t.turns[-1].status or t.turns[-1].predicted_status, "code": t.turns[-1].code or t.turns[-1].feedback}
        for reward, group, t in chosen
    ]  # fmt: skip


def _spans(marks: Sequence[bool]) -> list[list[int]]:
    """Where marks are set, as [begin, end) pairs.

    >>> _spans([False, True, True, False, True])
    [[1, 3], [4, 5]]
    """
    edges = [i for i, (a, b) in enumerate(pairwise([False, *marks, False])) if a != b]
    return [list(span) for span in zip(edges[::2], edges[1::2], strict=True)]


def _turns(group: Group) -> Iterator[Turn]:
    for trajectory in group.trajectories:
        yield from trajectory.turns
