"""The records of a training step: token rows, turns, trajectories, groups. All JSON-able, so a checkpoint can hold them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from wmrl_envs.context import FileInfo, TaskContext
from wmrl_envs.engine import Generation
from wmrl_envs.outcome import Outcome, Solution


@dataclass
class Row:
    """A sequence for the learner: `ids`, and for each whether the agent sampled it and with which log-probability (0.0
    elsewhere).

    `choices`: of an agent that was restricted, the ids each sampled token was chosen from (else empty). Of a robot the ids are
    the action codes of one look, all sampled, and `context` is what was seen.
    """

    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    choices: list[list[int]] = field(default_factory=list)
    context: Any = None

    def add(self, ids: Any, logprobs: Any = None, choices: Any = None) -> None:
        """Append ids that were given (`logprobs` None) or sampled, perhaps out of `choices`; what had no alternative counts as
        given.
        """
        ids = list(ids)
        self.ids += ids
        self.logprobs += [0.0] * len(ids) if logprobs is None else list(logprobs)
        if choices is None:
            self.sampled += [logprobs is not None] * len(ids)
        else:
            self.sampled += [len(c) > 1 for c in choices]
            self.choices += [list(c) for c in choices if len(c) > 1]

    @property
    def n_needed(self) -> int:
        """Length up to the last sampled token: nothing after it matters to the learner."""
        return next((i + 1 for i in reversed(range(len(self.sampled))) if self.sampled[i]), 0)

    @property
    def n_sampled(self) -> int:
        return sum(self.sampled)


@dataclass
class Turn:
    """One solution: what the agent wrote, what was predicted and what was executed. A robot's episode is one turn.

    Scores are None where they do not exist: `predicted` for solutions no program could be read from and without a world
    model, `true` outside anchor groups. `calibrated` is the prediction under the map of that step.
    """

    code: str
    problem: str | None = None
    predicted: float | None = None
    predicted_status: str | None = None
    calibrated: float | None = None
    true: float | None = None
    status: str | None = None  # of the execution
    raw_score: float | None = None
    feedback: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = "stop"
    version: int = 0  # weight updates the sampler had seen
    execution_s: float = 0.0  # wall clock
    execution_cpu_s: float = 0.0
    predicted_cpu_s: float = 0.0  # of a prediction that executed something
    cached: bool = False
    steps: int = 0  # actions of a robot that were simulated
    remembered: bool = False  # not executed here: the truth is that of an earlier execution of the same program
    picked: str | None = None  # executed after the rollout, inside its group: "random" or "favourite"
    propensity: float | None = None  # probability with which it was to be picked

    @property
    def paid(self) -> float | None:
        """The best that is known of its score: the truth, else the calibrated prediction."""
        return self.calibrated if self.true is None else self.true


@dataclass
class Trajectory:
    """One episode: rows of tokens (one, or one a turn; of a robot one a look) and its turns."""

    rows: list[Row] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def score(self, which: str, reward_mode: str) -> float:
        """Score of the episode in [0, 1] from its turns' scores `which` ("predicted", "calibrated", "true", "paid"; a missing
        one is 0).

        The best turn for reward modes "improvement" and "final" (what the environment's rewards sum to), the mean for "score".
        """
        scores = [float(getattr(turn, which) or 0.0) for turn in self.turns]
        if not scores:
            return 0.0
        return sum(scores) / len(scores) if reward_mode == "score" else max(scores)


@dataclass(frozen=True)
class GroupPlan:
    """What is decided about a group before its rollout. `id` is never reused; `seed` fixes its episodes."""

    id: int
    step: int
    task: str
    seed: int
    anchored: bool
    propensity: float = 1.0


@dataclass
class Group:
    """Trajectories of one task from one initial state. `failure` is why it was dropped (an infrastructure failure), or None.

    `start`: the number of that state, where the environment has numbered ones.
    """

    plan: GroupPlan
    trajectories: list[Trajectory] = field(default_factory=list)
    failure: str | None = None
    executed: list[tuple[Solution, TaskContext, Outcome]] = field(default_factory=list)  # for a world model that learns
    start: int | None = None

    def scores(self, which: str, reward_mode: str) -> list[float]:
        return [trajectory.score(which, reward_mode) for trajectory in self.trajectories]

    def pairs(self) -> list[tuple[float, float]]:
        """(predicted, true) of every solution that was predicted, and executed whatever its prediction was.

        A favourite was executed for its prediction, and a remembered truth may have been: neither is a random sample.
        """
        turns = [turn for trajectory in self.trajectories for turn in trajectory.turns]
        return [
            (t.predicted, t.true)
            for t in turns
            if t.predicted is not None and t.true is not None and not t.remembered and t.picked != "favourite"
        ]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Group:
        trajectories = [
            Trajectory([Row(**row) for row in t["rows"]], [Turn(**turn) for turn in t["turns"]]) for t in data["trajectories"]
        ]
        executed = [(Solution(**s), _context(c), Outcome.from_dict(o)) for s, c, o in data["executed"]]
        return cls(GroupPlan(**data["plan"]), trajectories, data["failure"], executed, data.get("start"))


@dataclass
class Sampled:
    """What one turn of groups under way was: with it they can be taken up after a restart without being sampled again.

    `prompts` is a digest of what was answered; `predicted`: outcomes and calibrated scores, None before they are there.
    """

    version: int
    prompts: str
    generations: list[Generation]
    predicted: list[tuple[Outcome, float]] | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Sampled:
        generations = [
            Generation(
                tuple(g["ids"]), tuple(g["logprobs"]), g["text"], g["finish"], g["choices"] and tuple(map(tuple, g["choices"]))
            )
            for g in data["generations"]
        ]
        predicted = data["predicted"] and [
            (Outcome.from_dict(outcome), calibrated) for outcome, calibrated in data["predicted"]
        ]
        return cls(data["version"], data["prompts"], generations, predicted)


def digest(prompts: Sequence[Sequence[int]]) -> str:
    """Of token ids."""
    return hashlib.sha256(b"".join(hashlib.sha256(array("q", ids).tobytes()).digest() for ids in prompts)).hexdigest()


def _context(data: dict[str, Any]) -> TaskContext:
    """From a dictionary that was JSON, where tuples are lists."""
    files = tuple(FileInfo(**file) for file in data["files"])
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return TaskContext(**plain | {"files": files, "history": tuple((code, feedback) for code, feedback in data["history"])})
