"""`MLEDojo-v0`: a competition as a multi-turn environment. The agent answers with a program, the environment runs and grades
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium.error import ResetNeeded

from wmrl_envs.context import TaskContext
from wmrl_envs.envs import parse
from wmrl_envs.envs.arguments import expect_count, expect_one_of, expect_type
from wmrl_envs.envs.episode_state import EpisodeState, RewardMode
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.envs.sandbox_lease import SandboxLease
from wmrl_envs.errors import InfrastructureError, InvalidAction, InvalidInput, WmrlError
from wmrl_envs.execution.base import ExecutionLimits, Job, Sandbox
from wmrl_envs.info import wmrl_info
from wmrl_envs.outcome import Execution, ExecutionStatus, Feedback, Outcome, Solution
from wmrl_envs.spaces import UnicodeText
from wmrl_envs.tasks import feedback
from wmrl_envs.text import cut_middle

if TYPE_CHECKING:
    from wmrl_envs.tasks.competition import Competition

# English and code under the tokenizers of today; a tokenizer of its own is no business of an environment.
CHARACTERS_PER_TOKEN = 4
ANSWER_CHARACTERS = 131_072  # longest answer: 32k tokens
OVERVIEW_CHARACTERS = 12_000 * CHARACTERS_PER_TOKEN  # longest first observation: the paper's context of 12k tokens

_REWARD_MODES = ("improvement", "score", "final")
_EXECUTIONS = ("auto", "process", "docker", "replay")
_SCAFFOLDS = (None, "sklearn")


class MLEDojoEnv(ExecutableEnv):
    """One competition a reset, one program a step, `max_turns` steps an episode.

    Action: the agent's whole answer or the bare program (`UnicodeText`). The program finds DATA_DIR and SUBMISSION_PATH in
    its environment. Observation (`UnicodeText`): the task overview after reset, then the feedback on the program. The last
    turn ends the episode as `terminated` (an episode has K attempts by definition); a failure of the sandbox ends it
    as `truncated`, with reward 0 and without a score.

    Args:
        competition: a slug, or several, of which each reset draws one with the seeded generator.
            `reset(options={"competition": slug})` plays another one for that episode.
        data_dir: folder of prepared competitions (`<slug>/data/public`, `<slug>/data/private`); default: where
            `wmrl tasks prepare` puts them.
        max_turns: programs an episode.
        execution: "auto", "process", "docker", "replay", or a `Sandbox` (which stays the caller's to close).
        timeout_s: wall-clock limit of a program in seconds; with `limits` the shorter of the two holds.
        reward_mode: "improvement": how much the turn raises the best score so far, so that the return of an episode is its
            best score; "score": the turn's score; "final": the best score, at the last turn. All in [0, 1].
        observation_tokens: longest feedback, counted as 4 characters a token; longer feedback is cut in its middle.
        scaffold: None: whole scripts. "sklearn": a prelude has loaded and split the columns, the program ends with `save(...)`.
        max_rows: training rows the scaffold loads (None: all).
        sandbox: the same as passing a `Sandbox` as `execution`.
        hide_score: the agent is told whether its submission is valid, but no score; `info` still has it.
        limits: memory, processes, disk and so on of a program.
        grade_late: a submission that is there when the time limit is reached is graded.
        join_blocks: the program is all Python blocks of an answer in order, not the last one alone.
        render_mode: None or "ansi" (`render()` returns the last observation under a line of status).

    `info["wmrl"]` after a step: `status`, `score` and `raw_score` of this turn (None after a failure of ours),
    `best_score`, `anchored` (really executed), `predicted`, `calibrated`, `true` (None where not known), `group`, `weight`,
    `wall_s` (seconds of execution).
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        competition: str | Sequence[str],
        data_dir: str | Path | None = None,
        max_turns: int = 4,
        execution: str | Sandbox = "auto",
        timeout_s: float = 1200,
        reward_mode: RewardMode = "improvement",
        observation_tokens: int = 1024,
        scaffold: str | None = None,
        max_rows: int | None = None,
        sandbox: Sandbox | None = None,
        hide_score: bool = False,
        limits: ExecutionLimits | None = None,
        render_mode: str | None = None,
        grade_late: bool = False,
        join_blocks: bool = False,
    ):
        several = isinstance(competition, (list, tuple))
        self.slugs: tuple[str, ...] = tuple(competition) if several else (cast(str, competition),)
        if not self.slugs:
            raise InvalidInput("competition=[]: expected the slug of a competition, or several; `wmrl tasks list` shows them.")
        expect_count("max_turns", max_turns)
        expect_count("observation_tokens", observation_tokens)
        expect_one_of("reward_mode", reward_mode, _REWARD_MODES)
        expect_one_of("scaffold", scaffold, _SCAFFOLDS)
        expect_one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        if max_rows is not None:
            expect_count("max_rows", max_rows)
            if scaffold is None:
                raise InvalidInput(
                    f"max_rows={max_rows}: only a scaffold loads the data; pass scaffold='sklearn' or max_rows=None."
                )
        if not isinstance(execution, Sandbox):
            expect_one_of("execution", execution, _EXECUTIONS)
        expect_type("sandbox", sandbox, Sandbox)
        expect_type("limits", limits, ExecutionLimits)
        expect_type("data_dir", data_dir, str, Path)
        own = ExecutionLimits(timeout_s=timeout_s)
        self.limits = own if limits is None else replace(limits, timeout_s=min(timeout_s, limits.timeout_s))
        if data_dir is not None and "\0" in str(data_dir):
            raise InvalidInput(f"data_dir={str(data_dir)!r}: expected a folder, whose name has no null character.")
        self.data_dir = None if data_dir is None else Path(data_dir).expanduser().resolve()
        self.max_turns, self.reward_mode, self.hide_score = max_turns, reward_mode, hide_score
        self.scaffold, self.max_rows, self.render_mode = scaffold, max_rows, render_mode
        self.grade_late, self.join_blocks = bool(grade_late), bool(join_blocks)
        self._feedback_characters = observation_tokens * CHARACTERS_PER_TOKEN
        self.action_space = UnicodeText(ANSWER_CHARACTERS)
        self.observation_space = UnicodeText(max(OVERVIEW_CHARACTERS, self._feedback_characters))
        given = sandbox if sandbox is not None else execution
        self._given = given if isinstance(given, Sandbox) else None
        self._lease = SandboxLease(cast(str, execution)) if self._given is None else None
        self._competitions: dict[str, Competition] = {}
        self._episode: EpisodeState | None = None
        self._holds_grader = False  # the processes that grade are shared by all environments of this process
        self._observation = ""
        for slug in self.slugs:
            self.competition(slug)

    # --- the episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode: (overview, {}). `options={"competition": slug}` chooses its competition."""
        super().reset(seed=seed)
        if not isinstance(options or {}, Mapping) or set(options or {}) - {"competition"}:
            raise InvalidInput(f"reset(options={options!r}): expected a dict with at most the key 'competition'.")
        chosen = (options or {}).get("competition")
        if chosen is None:
            chosen = self.slugs[int(self.np_random.integers(len(self.slugs)))] if len(self.slugs) > 1 else self.slugs[0]
        competition = self.competition(chosen)
        competition.require_ranking()  # said before a program has run, not after
        self._episode = EpisodeState(competition, self._describe(competition))
        self._observation = cut_middle(self._episode.context.overview, OVERVIEW_CHARACTERS)
        return self._observation, {}

    def propose(self, action: Any) -> Solution:
        if not isinstance(action, (str, np.str_)):
            raise InvalidAction(f"action of type {type(action).__name__}: expected a str, the agent's answer or its program.")
        episode = self._running()
        found = parse.solution(str(action), episode.competition.slug, ANSWER_CHARACTERS, self.join_blocks)
        episode.code = found.code
        return found

    def execute(self, solution: Solution) -> Outcome:
        """Run and grade; what the sandbox saw is let go, for outcomes are kept long and a submission may be large (see
        `run`).
        """
        return self.run(solution)[0]

    def run(self, solution: Solution) -> tuple[Outcome, Execution | None]:
        """`execute`, with what the sandbox saw (None when nothing ran), for those who keep the submission."""
        if solution.problem is not None:
            told = feedback.unreadable(solution.problem)
            return Outcome(ExecutionStatus.AGENT_ERROR, feedback=feedback.render(told), report=told), None
        competition = self.competition(solution.task)
        execution = None
        try:
            from wmrl_envs.tasks import grade
            from wmrl_envs.tasks.grader import shared

            if not self._holds_grader:
                shared().hold()
                self._holds_grader = True
            execution = self.sandbox.run_job(self.job(solution))
            return grade(competition, execution, limits=self.limits, grade_late=self.grade_late), execution
        except InfrastructureError as error:
            told = Feedback("Execution not completed: a failure of the environment. This attempt is not scored.")
            text = feedback.render(told)
            return Outcome(ExecutionStatus.INFRA_ERROR, feedback=text, report=told, error=str(error)), execution

    def observe(self, outcome: Outcome) -> tuple[str, float, bool, bool, dict[str, Any]]:
        episode = self._running()
        reward = episode.take(outcome, self.max_turns, self.reward_mode)
        text = feedback.render(
            feedback.for_agent(outcome),
            best_raw=episode.best_raw,
            best_score=episode.best_score,
            hide_score=self.hide_score,
            max_characters=self._feedback_characters,
        )
        episode.history.append((episode.code, text))
        self._observation = text
        failed_us = outcome.is_infra_error
        return text, reward, episode.over and not failed_us, failed_us, {"wmrl": self._info(outcome, episode)}

    def context(self) -> TaskContext:
        if self._episode is None:
            raise ResetNeeded("context() before reset(): call reset() first.")
        return replace(self._episode.context, history=tuple(self._episode.history))

    def render(self) -> Any:
        """The last observation under a line of status, in render mode "ansi"; otherwise None."""
        if self.render_mode is None or self._episode is None:
            return None
        e = self._episode
        return f"{e.competition.slug}: attempt {e.turn} of {self.max_turns}, best score {e.best_score:.4f}\n{self._observation}"

    def close(self) -> None:
        """Release the sandbox this environment made, and the grading processes; idempotent. A sandbox that was passed in stays
        open.
        """
        if self._holds_grader:
            from wmrl_envs.tasks.grader import shared

            shared().release()
            self._holds_grader = False
        if self._lease is not None:
            self._lease.release()

    # --- what trainers and evaluations share

    @property
    def sandbox(self) -> Sandbox:
        """Where programs run; made on first use."""
        if self._given is not None:
            return self._given
        assert self._lease is not None
        return self._lease.sandbox

    @property
    def task(self) -> str:
        """Slug of the competition of this episode."""
        return self._running(finished_too=True).competition.slug

    def competition(self, slug: str) -> Competition:
        """The competition of this name in this environment's data; loaded once."""
        if not isinstance(slug, str):
            raise InvalidInput(f"competition={slug!r}: expected the slug of a competition, for example 'credit-default'.")
        if slug not in self._competitions:
            from wmrl_envs.tasks import load_competition

            self._competitions[slug] = load_competition(slug, self.data_dir)
        return self._competitions[slug]

    def job(self, solution: Solution) -> Job:
        """What the sandbox is asked to run for a solution (so that a scheduler may run many at once)."""
        competition = self.competition(solution.task)
        prelude, variables = "", {}
        if self.scaffold is not None:
            from wmrl_envs.tasks import scaffold

            prelude, variables = scaffold.PRELUDE, scaffold.environment(competition, self.max_rows)
        return Job(solution.code, Path(competition.public_dir), self.limits, prelude, variables)

    # --- inside

    def _running(self, finished_too: bool = False) -> EpisodeState:
        if self._episode is None or (self._episode.over and not finished_too):
            state = "not begun" if self._episode is None else "ended"
            raise ResetNeeded(f"the episode has {state}: call reset() first.")
        return self._episode

    def _describe(self, competition: Competition) -> TaskContext:
        from wmrl_envs.tasks import task_context

        context = task_context(competition, timeout_s=self.limits.effective_s)
        context = replace(context, data_dir=None if self.data_dir is None else str(self.data_dir))
        if installed := self._installed():
            libraries = ", ".join(package.replace("==", " ") for package in installed)
            overview = (
                f"{context.overview.rstrip()}\n\nInstalled libraries (no others can be imported or installed): {libraries}"
            )
            context = replace(context, installed=installed, overview=overview)
        if self.scaffold is None:
            return context
        from wmrl_envs.tasks import scaffold

        names = scaffold.describe(competition, self.max_rows)
        overview = f"{context.overview.rstrip()}\n\n{scaffold.overview(names)}"
        return replace(context, overview=overview, scaffold=self.scaffold, scaffold_names=names)

    def _installed(self) -> tuple[str, ...]:
        """The libraries of the sandbox, which is not started for this."""
        if self._given is not None:
            return self._given.packages
        from wmrl_envs.execution.environment import load_environment

        assert self._lease is not None
        if self._lease.kind not in ("auto", "process"):
            return ()
        try:
            return load_environment().packages
        except WmrlError:
            return ()

    def _info(self, outcome: Outcome, episode: EpisodeState) -> dict[str, Any]:
        executed, ours = outcome.source != "predicted", outcome.is_infra_error
        score = None if ours else float(outcome.score)
        return wmrl_info(
            {
                "status": outcome.status.value,
                "score": score,
                "raw_score": None if ours or outcome.raw_score is None else float(outcome.raw_score),
                "best_score": episode.best_score,
                "anchored": executed,
                "predicted": None if executed else score,
                "true": score if executed else None,
                "weight": 1.0,
                "wall_s": float(outcome.wall_s),
            }
        )
