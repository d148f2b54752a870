"""Rollouts: groups of multi-turn episodes, token ids in and token ids out, over three lanes that overlap.

Groups advance in *cohorts*, turn by turn: each anchor group is a cohort of its own and goes first, so that its executions
overlap with the generation and prediction of all the others, which form one cohort and are generated together. What is
batched with what is therefore fixed by the plan and not by the clock, and an equal seed gives an equal run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from wmrl_envs.anchoring.graded import Graded
from wmrl_envs.anchoring.outcomes import Asked, OutcomeOracle, Predicted
from wmrl_envs.context import TaskContext
from wmrl_envs.correction.corrector import Corrector
from wmrl_envs.engine import Engine, Generation, Sampling
from wmrl_envs.engine import max_context as context_of
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import Outcome, Solution
from wmrl_envs.world_models.protocols import OutcomeModel
from wmrl_train.episodes.agent import Agent, renders_every_turn, restriction
from wmrl_train.episodes.lanes import Busy, Lane
from wmrl_train.episodes.records import Group, GroupPlan, Row, Sampled, Trajectory, Turn, digest

log = logging.getLogger(__name__)


class Roller:
    """Rolls groups out.

    Args:
        engine, agent: who acts.
        make_env: task -> environment; environments are kept and used again for later groups of the task.
        world_model: predicts outcomes; None if every group is an anchor.
        corrector: calibrates them, for what the environment is told and paid in predicted groups; None: raw predictions.
        sampling: temperature, top-p and token limit; the stop ids are the agent's.
        group_size: trajectories a group.
        max_context: tokens of a conversation; an episode whose conversation is full ends.
        generation_workers, prediction_workers, execution_workers: calls at a time of each lane.
        retries: further attempts after an infrastructure failure, before the group is dropped.
    """

    def __init__(
        self,
        engine: Engine,
        agent: Agent,
        make_env: Callable[[str], ExecutableEnv],
        world_model: OutcomeModel | None,
        corrector: Corrector | None = None,
        *,
        sampling: Sampling,
        group_size: int,
        max_context: int | None = None,
        generation_workers: int = 1,
        prediction_workers: int = 1,
        execution_workers: int = 1,
        retries: int = 2,
    ):
        self._engine, self._agent, self._make_env = engine, agent, make_env
        self._sampling = replace(
            sampling, stop_ids=agent.stop_ids, max_new_tokens=min(sampling.max_new_tokens, agent.max_new_tokens)
        )
        self._group_size, self._retries = group_size, retries
        self._max_context = min(max_context or 2**31, context_of(engine) or 2**31)
        self.busy = Busy()  # any lane
        self.generation = Lane("generate", generation_workers, cpu="process", together=self.busy)
        self.prediction = Lane("predict", prediction_workers, cpu="thread", together=self.busy)
        self.execution = Lane("execute", execution_workers, together=self.busy)
        self.oracle = OutcomeOracle(
            world_model, corrector, retries=retries, prediction=self.prediction, execution=self.execution
        )
        self._cohorts = ThreadPoolExecutor(256, thread_name_prefix="cohort")
        self._closing = False
        self._idle: dict[str, list[ExecutableEnv]] = {}
        self._envs: list[ExecutableEnv] = []

    def start(self, plans: Sequence[GroupPlan], given: Sequence[Sampled] = ()) -> list[Running]:
        """Set groups going: one cohort for each anchor group, then one for all the others. `given`: turns sampled before a
        restart.
        """
        anchors = [[plan] for plan in plans if plan.anchored]
        others = [plan for plan in plans if not plan.anchored]
        cohorts = [[_Member(plan, i, self._lend(plan.task)) for plan in c for i in range(self._group_size)] for c in anchors]
        cohorts += (
            [[_Member(plan, i, self._lend(plan.task)) for plan in others for i in range(self._group_size)]] if others else []
        )
        running = [Running(members, given) for members in cohorts]
        for cohort in running:
            cohort.future = self._cohorts.submit(self._run, cohort)
        return running

    def take_up(self, data: dict[str, Any]) -> Running:
        """A cohort from the checkpoint it was saved in (`Running.as_dict`)."""
        if "groups" not in data:
            return self.start([GroupPlan(**plan) for plan in data["plans"]], list(map(Sampled.from_dict, data["sampled"])))[0]
        landed = Running([])
        landed.future = Future()
        landed.future.set_result(list(map(Group.from_dict, data["groups"])))
        return landed

    def collect(self, plans: Sequence[GroupPlan]) -> list[Group]:
        """Roll groups out and wait for them; in the order of `plans`."""
        groups = [group for cohort in self.start(plans) for group in cohort.result()]
        order = {plan.id: i for i, plan in enumerate(plans)}
        return sorted(groups, key=lambda group: order[group.plan.id])

    def close(self) -> None:
        """End the lanes and the environments. Does not wait for executions: closing the sandbox ends those."""
        self._closing = self.oracle.closing = True
        for pool in (self._cohorts, self.generation, self.prediction, self.execution):
            pool.shutdown(wait=False, cancel_futures=True) if isinstance(pool, ThreadPoolExecutor) else pool.close()
        for env in self._envs:
            env.close()

    def execute(self, chosen: Sequence[tuple[Group, Turn]]) -> None:
        """Execute programs of finished groups: their turns get the truth, a failure of ours is their group's."""
        envs = [self._lend(group.plan.task) for group, _ in chosen]
        asked = []
        for (group, turn), env in zip(chosen, envs, strict=True):
            env.reset(seed=group.plan.seed)
            asked.append(
                Asked(Solution(turn.code, group.plan.task), env.context(), env.execute, True, group.plan.id, group.plan.step)
            )
        jobs = self.oracle.execute(asked)
        for (group, turn), graded, question in zip(
            chosen, self.oracle.join(asked, [None] * len(asked), jobs), asked, strict=True
        ):
            turn.true, turn.status, turn.raw_score, turn.cached = graded.true, graded.status, graded.raw_score, graded.cached
            turn.execution_s, turn.execution_cpu_s = float(graded.wall_s or 0.0), graded.cpu_s
            self.execution.charge(0.0 if graded.cached else graded.cpu_s)
            if graded.failed is not None:
                group.failure = group.failure or f"execution failed: {graded.failed}"
            else:
                group.executed.append((question.solution, question.context, graded.execution))
        for (group, _), env in zip(chosen, envs, strict=True):
            self._idle[group.plan.task].append(env)

    # -- one cohort --------------------------------------------------------------------------------------------------
    def _run(self, cohort: Running) -> list[Group]:
        members = cohort.members
        groups = {member.plan.id: Group(member.plan) for member in members}
        try:
            for member in members:
                member.begin(self._agent)
            turn = 0
            while live := [m for m in members if not m.over and groups[m.plan.id].failure is None]:
                self._turn(live, groups, turn, cohort)
                turn += 1
        finally:
            for member in members:
                groups[member.plan.id].trajectories.append(member.trajectory)
                self._idle[member.plan.task].append(member.env)
        for group in groups.values():
            if group.failure is not None and not self._closing:
                log.warning("Group %d (%s) was dropped: %s", group.plan.id, group.plan.task, group.failure)
        return list(groups.values())

    def _turn(self, live: list[_Member], groups: dict[int, Group], turn: int, cohort: Running) -> None:
        """Generate, predict (everywhere) and execute (anchor groups), observe."""
        room = [m for m in live if len(m.row.ids) < self._max_context]
        for member in live:
            if member not in room:
                if turn == 0:
                    raise InvalidInput(
                        f"The first prompt of {member.plan.task} has {len(member.row.ids)} tokens and the context only "
                        f"{self._max_context}: raise rollout.max_context or take a model with a longer context."
                    )
                member.over = True  # the conversation is full; what was scored counts
        if not room:
            return
        try:
            sampled = cohort.given(turn, [m.row.ids for m in room]) or self._sample(room, turn)
        except InfrastructureError as error:
            _fail(groups, room, f"generation failed: {error}")
            return
        cohort.sampled.append(sampled)
        for member, generation in zip(room, sampled.generations, strict=True):
            member.propose(self._agent, generation, sampled.version)
        for member, graded in zip(room, self._grade(room, sampled), strict=True):
            member.take(graded)
            if graded.prediction is not None:  # of a model that executes something: what that took is execution
                self.execution.charge(_paid_cpu_s(graded.prediction))
            if graded.execution is not None:
                self.execution.charge(0.0 if graded.cached else graded.cpu_s)
            if graded.failed is not None and graded.execution is not None:
                _fail(groups, [member], f"execution failed: {graded.failed}")
            elif graded.unpredicted is not None:  # of an anchor too: every fusion rule but one needs both scores
                _fail(groups, [member], f"prediction failed: {graded.unpredicted}")
            elif member.plan.anchored and member.solution.problem is None:
                groups[member.plan.id].executed.append((member.solution, member.context, graded.execution))
        for member in room:
            if groups[member.plan.id].failure is None:
                member.observe(self._agent)

    def _sample(self, members: list[_Member], turn: int) -> Sampled:
        seeds = [_seed(m.plan.seed, m.index, turn) for m in members]
        prompts = [m.row.ids for m in members]
        version = self._engine.version
        generate: Callable[..., Any] = partial(self._engine.generate, **restriction(self._agent, [m.context for m in members]))
        made = self._retried(lambda: self.generation.run(generate, prompts, self._sampling, seeds))
        return Sampled(version, digest(prompts), made)

    def _grade(self, members: list[_Member], sampled: Sampled) -> list[Graded]:
        """Execute the anchors, predict everything (unless a checkpoint has the predictions), and put both together."""
        asked = [m.asked() for m in members]
        running = self.oracle.execute(asked)
        if sampled.predicted is None:
            predicted = self.oracle.predict(asked)
            made = [p for p in predicted if p is not None]
            if made and not any(p.outcome.is_infra_error for p in made):
                sampled.predicted = [(p.outcome, p.calibrated) for p in made]
        else:
            known = (Predicted(*p) for p in sampled.predicted)
            predicted = [next(known) if a.solution.problem is None else None for a in asked]
        return self.oracle.join(asked, predicted, running)

    def _retried(self, call: Callable[[], Any]) -> Any:
        for attempt in range(self._retries + 1):
            try:
                return call()
            except InfrastructureError as error:
                if attempt == self._retries or self._closing:
                    raise
                log.warning("%s (attempt %d of %d)", error, attempt + 1, self._retries + 1)

    def _lend(self, task: str) -> ExecutableEnv:
        idle = self._idle.setdefault(task, [])
        if idle:
            return idle.pop()
        env = self._make_env(task)
        self._envs.append(env)
        return env


class Running:
    """Groups under way that advance together, and what was sampled for them so far.

    Args:
        members: their trajectories.
        before: turns that were sampled before a restart; one is used if it answers the same prompts.
    """

    future: Future[list[Group]]

    def __init__(self, members: list[_Member], before: Sequence[Sampled] = ()):
        self.members, self.sampled, self._before = members, list[Sampled](), before

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the groups, or, if they are not finished, what it takes to go on. Waits for nothing."""
        if self.future.done():
            return {"groups": [group.as_dict() for group in self.result()]}
        plans = dict.fromkeys(member.plan for member in self.members)
        return {"plans": list(map(asdict, plans)), "sampled": list(map(asdict, list(self.sampled)))}

    def result(self) -> list[Group]:
        """The groups, once they are finished."""
        return self.future.result()

    def given(self, turn: int, prompts: list[list[int]]) -> Sampled | None:
        """What was sampled for these prompts before the restart."""
        same = turn < len(self._before) and self._before[turn].prompts == digest(prompts)
        return self._before[turn] if same else None


class _Member:
    """One trajectory under way."""

    def __init__(self, plan: GroupPlan, index: int, env: ExecutableEnv):
        self.plan, self.index, self.env = plan, index, env
        self.trajectory, self.over = Trajectory(), False
        self.solution, self.context = Solution(), TaskContext(plan.task)
        self._outcome: Outcome | None = None
        self._texts: list[str] = []
        self._observations: list[str] = []

    @property
    def row(self) -> Row:
        return self.trajectory.rows[-1]

    @property
    def turn(self) -> Turn:
        return self.trajectory.turns[-1]

    def begin(self, agent: Agent) -> None:
        observation, _ = self.env.reset(seed=self.plan.seed)
        self._observations.append(observation)
        self.context = self.env.context()
        self.trajectory.rows.append(Row())
        self.row.add(agent.begin(observation, self.context))

    def propose(self, agent: Agent, generation: Generation, version: int) -> None:
        prompt_tokens = len(self.row.ids)
        if len(generation.logprobs) != len(generation.ids) or not generation.ids:
            raise InvalidInput("The engine returned a completion without ids and log-probabilities, which training needs.")
        self.row.add(generation.ids, generation.logprobs, generation.choices)
        self._texts.append(generation.text)
        self.solution = self.env.propose(agent.act(generation.text))
        turn = Turn(self.solution.code, self.solution.problem, finish=generation.finish, version=version)
        turn.prompt_tokens, turn.completion_tokens = prompt_tokens, len(generation.ids)
        self.trajectory.turns.append(turn)
        self._completion = generation.ids

    def asked(self) -> Asked:
        return Asked(self.solution, self.context, self.env.execute, self.plan.anchored, self.plan.id, self.plan.step)

    def take(self, graded: Graded) -> None:
        """What became of the solution, for the record and for the environment."""
        turn, self._outcome = self.turn, graded.used
        turn.predicted, turn.calibrated, turn.true = graded.predicted, graded.calibrated, graded.true
        turn.remembered = graded.remembered
        if graded.predicted is not None:
            turn.predicted_status, turn.predicted_cpu_s = graded.prediction.status.value, _paid_cpu_s(graded.prediction)
        if graded.execution is not None:
            turn.status, turn.raw_score, turn.cached = graded.status, graded.raw_score, graded.cached
            turn.execution_s, turn.execution_cpu_s = float(graded.wall_s or 0.0), graded.cpu_s

    def observe(self, agent: Agent) -> None:
        assert self._outcome is not None
        observation, _, terminated, truncated, _ = self.env.observe(self._outcome)
        self.turn.feedback = str(observation)
        self.over = terminated or truncated
        self._outcome = None
        if self.over:
            return
        self.context = self.env.context()
        self._observations.append(observation)
        if renders_every_turn(agent):
            self.trajectory.rows.append(Row())
            self.row.add(agent.render(self._observations, self._texts, self.context))
        else:
            self.row.add(agent.extend(observation, self._completion))


def _fail(groups: dict[int, Group], members: Sequence[_Member], why: str) -> None:
    for member in members:
        group = groups[member.plan.id]
        group.failure = group.failure or why


def _seed(*parts: int) -> int:
    """A 63-bit seed that depends on every part."""
    return int(np.random.SeedSequence([int(p) for p in parts]).generate_state(1, np.uint64)[0] >> 1)


def _paid_cpu_s(prediction: Outcome) -> float:
    return 0.0 if prediction.cached else float(prediction.cpu_s)
