"""The training loop, top to bottom: plan, roll out, correct, learn, record, save.

plan      tasks of the step, which groups are anchored (before anything is sampled)
roll out  generate; predict every solution; really execute the anchors' (the lanes overlap)
correct   calibrated rewards, anchor weights -> one weighted advantage a trajectory
learn     one GRPO update; new weights to the engine
observe   the new pairs enter the pool, the world model learns from the executions
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.anchoring.memory import Memory
from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_envs.world_models.protocols import Doubting, LearningModel, Resumable
from wmrl_train.config import Config
from wmrl_train.engines.load import hand_over
from wmrl_train.episodes.records import Group, GroupPlan
from wmrl_train.episodes.seeds import seed_of
from wmrl_train.learn.guard import NonFiniteLoss
from wmrl_train.run import checkpoint, metrics
from wmrl_train.run.interrupt import Interrupts
from wmrl_train.run.progress import Progress
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.run.tracking import Trackers
from wmrl_train.training.afterwards import Afterwards
from wmrl_train.training.alarm import Alarm
from wmrl_train.training.estimator import correct, episode_scores, samples
from wmrl_train.training.parts import Deferring, Parts, Recalling, Running


class Interrupted(WmrlError):
    """Ctrl-C: what was finished is saved, the message says how to go on."""


class AuditStop(WmrlError):
    """The audit of the anchors asked to stop (`correction.on_alarm: act`); everything is saved."""


class TooManyFailures(WmrlError, RuntimeError):
    """Every group of several steps in a row failed for reasons of ours."""


@dataclass(frozen=True)
class Clock:
    """Seconds of a step: when it began, its rollout and its update by the wall, and the update's CPU seconds."""

    began: float
    rollout_s: float
    learn_s: float
    learn_cpu_s: float


class Trainer:
    """One run.

    Args:
        config: the resolved configuration.
        parts: built from it.
        run: its directory, already acquired.
        progress: shows what happens.
    """

    PATIENCE = 3  # steps in a row without a single usable group

    def __init__(self, config: Config, parts: Parts, run: RunDirectory, progress: Progress | None = None):
        self.config, self.parts, self.run_dir = config, parts, run
        self.progress = progress or Progress.quiet()
        self.trackers = Trackers(config, run.path)
        correction = config.correction
        self.learner = parts.make_learner(parts.model, config)
        self.corrector = Corrector(
            min_pairs=correction.min_pairs, refit_every=correction.refit_every, direction=correction.direction,
            levels=correction.levels, w_max=correction.w_max, debias=correction.debias, denoise=correction.denoise,
            fusion=correction.fusion, prequential=correction.prequential, window=correction.window,
            per_task=correction.per_task, two_stage=correction.two_stage,
        )  # fmt: skip
        self.roller = parts.make_roller(config, self.corrector)
        self.memory = Memory() if config.anchors.memory and isinstance(self.roller, Recalling) else None
        if isinstance(self.roller, Recalling):
            self.roller.oracle.memory = self.memory
        self.afterwards, self.alarm = Afterwards(config, self.roller), Alarm(config)
        self.schedule = AnchorSchedule(
            self.afterwards.drawn_fraction, 0 if self.afterwards.inside else config.anchors.min_groups,
            seed_of(config.run.seed, 1),
            stratify=config.anchors.stratify, adaptive=correction.on_alarm == "act",
        )  # fmt: skip
        self.step = 0
        self.ledger = metrics.Ledger()
        self.pending: list[tuple[int, Running]] = []  # anchor groups under way, with the step they join
        self._barren = 0
        self._before_step = (0, self.schedule.state_dict(), self.pending)
        self._interrupts = Interrupts()

    # -- the loop ----------------------------------------------------------------------------------------------------
    def run(self) -> dict[str, Any]:
        """Train to the last step, evaluate before and after; returns both evaluations and the ledger.

        Raises:
            Interrupted: on Ctrl-C, after a checkpoint of the last finished step was saved.
            AuditStop: predictions no longer follow executions at all; also after a checkpoint.
        """
        steps = self.config.train.steps
        try:
            with self._interrupts.caught():
                if self.step == 0 and self.parts.try_out is not None:
                    self.parts.try_out(self)
                if self._due():
                    self._evaluate()
                while self.step < steps:
                    self._before_step = (self.step, self.schedule.state_dict(), list(self.pending))
                    self._train_step()
                    distrusted = self.alarm.stops(self.corrector.action)
                    if self.step % self.config.train.save_every == 0 or self.step == steps or distrusted:
                        self.save()
                    if distrusted:
                        raise AuditStop(
                            f"The audit of the anchors asks to stop at step {self.step}: what the world model likes best is "
                            f"far from what execution says (see {self.run_dir.path / 'anchors.jsonl'}). Everything is saved; "
                            "to go on all the same, resume with correction.on_alarm=warn."
                        )
                    if self._due() and not self._interrupts.asked:
                        self._evaluate()
                    if self._interrupts.asked:
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            self._save_interrupted()
        except NonFiniteLoss:  # the weights may be between two epochs: the last checkpoint stays the last
            raise
        except WmrlError:
            self._keep()
            raise
        evaluations = self.evaluations()
        return {"before": evaluations.get(0), "after": evaluations.get(steps), "ledger": self.ledger.as_dict()}

    def _train_step(self) -> None:
        began = time.perf_counter()
        groups = self._roll_out(self._plan())
        rolled_s = time.perf_counter() - began
        kept = [group for group in groups if group.failure is None]
        self._check_patience(groups)
        advantages, rewards = self._correct(groups)
        learn_began, cpu = time.perf_counter(), time.process_time()
        with self._learn_undisturbed():
            learned = self.learner.update(samples(kept, advantages))
            self.alarm.mismatch(learned)
            hand_over(self.parts.model, self.parts.engine)
            learn_s, learn_cpu_s = time.perf_counter() - learn_began, time.process_time() - cpu
            self._observe(kept)
            self.step += 1
            self._record(groups, advantages, rewards, learned, Clock(began, rolled_s, learn_s, learn_cpu_s))

    def _plan(self) -> list[GroupPlan]:
        """The groups of this step: tasks in shuffled epochs, anchors at random with recorded propensity."""
        m, seed = self.config.rollout.groups, self.config.run.seed
        tasks = [task_at(self.parts.tasks, seed, self.step * m + i) for i in range(m)]
        model = self.parts.world_model
        priority = (
            [1e-3 + model.spread(task) for task in tasks] if isinstance(model, Doubting) else None
        )  # where it is in doubt
        anchored, propensity = self.schedule.draw(m, tasks, priority=priority)
        return [
            GroupPlan(
                self.step * m + i, self.step, tasks[i], seed_of(seed, 2, self.step, i), bool(anchored[i]), float(propensity[i])
            )
            for i in range(m)
        ]

    def _roll_out(self, plans: list[GroupPlan]) -> list[Group]:
        """This step's groups, with anchors that started `anchors.lag` steps ago in place of those that start now."""
        lag = self.config.anchors.lag
        if lag == 0:
            groups = self.roller.collect(self.afterwards.plans(plans))
            self.afterwards.execute(groups, plans)
            return groups
        cohorts = self._deferring().start(plans)
        n_anchors = sum(plan.anchored for plan in plans)
        self.pending += [(self.step + lag, anchors) for anchors in cohorts[:n_anchors]]
        groups = [group for others in cohorts[n_anchors:] for group in others.result()]
        last = self.step == self.config.train.steps - 1
        due = [anchors for step, anchors in self.pending if step <= self.step or last]
        self.pending = [(step, anchors) for step, anchors in self.pending if step > self.step and not last]
        landed = [group for anchors in due for group in anchors.result()]
        return sorted(landed + groups, key=lambda group: group.plan.id)

    def _deferring(self) -> Deferring:
        if not isinstance(self.roller, Deferring):
            raise InvalidInput(
                f"anchors.lag={self.config.anchors.lag}: {type(self.roller).__name__} cannot defer anchors; set it to 0."
            )
        return self.roller

    def _correct(self, groups: list[Group]) -> tuple[np.ndarray, np.ndarray]:
        """Weighted advantages (m, n) of the usable groups and their rewards (m, n), see `correct`."""
        return correct(groups, self.corrector, self.config, freeze=self.alarm.freezes(self.corrector.action))

    def _observe(self, groups: list[Group]) -> None:
        """After the update, so that a prediction is never corrected by its own pair."""
        model = self.parts.world_model
        for group in groups:
            pairs = group.pairs()
            if pairs:
                predicted, true = zip(*pairs, strict=True)
                episodes = episode_scores(group, self.config.tasks.reward_mode) if self.corrector.prequential else None
                self.corrector.observe(predicted, true, group=group.plan.id, task=group.plan.task, episodes=episodes)
            for solution, _, outcome in group.executed if self.memory is not None else ():
                self.memory.remember(solution, outcome, self.step)  # type: ignore[union-attr]
            if group.executed and isinstance(model, LearningModel):
                solutions, contexts, outcomes = zip(*group.executed, strict=True)
                model.update(solutions, contexts, outcomes)
        self.alarm.heed(self.corrector, self.schedule)

    def _check_patience(self, groups: list[Group]) -> None:
        """Nothing usable, or nothing of what was to be predicted, several times in a row."""
        wanted = [g for g in groups if not g.plan.anchored] or groups
        lost = [g.failure for g in wanted if g.failure is not None]
        self._barren = self._barren + 1 if len(lost) == len(wanted) and not self.config.anchors.lag else 0
        if self._barren >= self.PATIENCE:
            raise TooManyFailures(
                f"No group of {self.PATIENCE} steps in a row could be graded for reasons of ours (the last: {lost[-1]}); "
                f"the last checkpoint is in {self.run_dir.checkpoints}. Check the machine with `wmrl doctor`, then resume."
            )

    # -- records -----------------------------------------------------------------------------------------------------
    def _record(
        self,
        groups: list[Group],
        advantages: np.ndarray,
        rewards: np.ndarray,
        learned: dict[str, float],
        clock: Clock,
    ) -> None:
        kept = [g for g in groups if g.failure is None]
        lanes = {lane.name: lane.take() for lane in (self.roller.generation, self.roller.prediction, self.roller.execution)}
        self.ledger.add(groups, lanes, clock.learn_cpu_s)
        values = metrics.of_step(kept, rewards, self.config.tasks.reward_mode)
        values["groups/dropped"] = float(len(groups) - len(kept))
        values |= {f"policy/{key}": value for key, value in learned.items()}
        values |= {f"anchor/{key}": value for key, value in self.corrector.metrics().items()}
        values |= {f"ledger/{key}": value for key, value in self.ledger.as_dict().items()}
        wall_s = time.perf_counter() - clock.began
        values |= {f"time/{name}_s": lane.busy_s for name, lane in lanes.items()}
        values |= {"time/learn_s": clock.learn_s, "time/rollout_s": clock.rollout_s, "time/step_s": wall_s,
                   "time/other_s": max(0.0, wall_s - self.roller.busy.take() - clock.learn_s)}  # fmt: skip
        values["policy/version"] = float(self.parts.engine.version)
        for record in metrics.rollout_records(self.step, kept, advantages, rewards):
            self.run_dir.append("rollouts.jsonl", record)
        for record in metrics.anchor_records(self.step, kept):
            self.run_dir.append("anchors.jsonl", record)
        self.run_dir.append("metrics.jsonl", {"step": self.step} | values)
        self.trackers.log(self.step, values)
        self.progress.step(self.step, values)
        if self.step % self.config.tracking.samples_every == 0 and kept:
            self.progress.samples(metrics.sample_table(kept, rewards))

    def _evaluate(self) -> None:
        assert self.parts.evaluate is not None
        self.progress.note(f"Evaluating at step {self.step}: eval.k={self.config.eval.k}, really executed.")
        began = time.perf_counter()
        result = self.parts.evaluate(self.step)
        self.run_dir.append("metrics.jsonl", {"step": self.step, "eval": result | {"wall_s": time.perf_counter() - began}})
        flat = {f"eval/{split}/{key}": v for split, table in result.items() for key, v in table.items() if isinstance(v, float)}
        self.trackers.log(self.step, flat)
        self.progress.evaluation(self.step, result)

    def _due(self) -> bool:
        """Whether this step is one to evaluate at, and was not evaluated yet: also where a kill came in between."""
        every, steps = self.config.eval.every, self.config.train.steps
        wanted = self.step in (0, steps) or bool(every and self.step % every == 0)
        return wanted and self.config.eval.k > 0 and self.parts.evaluate is not None and self.step not in self.evaluations()

    def evaluations(self) -> dict[int, dict[str, Any]]:
        """Results of the evaluations so far, by step."""
        return {r["step"]: r["eval"] for r in self.run_dir.read("metrics.jsonl") if "eval" in r}

    # -- checkpoints -------------------------------------------------------------------------------------------------
    def save(self) -> Path:
        """Checkpoint everything. Of deferred anchors that are not finished, what was sampled: a resumed run executes it
        again.
        """
        model = self.parts.world_model
        state = {
            "corrector": self.corrector.state_dict(),
            "schedule": self.schedule.state_dict(),
            "world_model": model.state_dict() if isinstance(model, Resumable) else None,
            "ledger": self.ledger.as_dict(),
            "memory": None if self.memory is None else self.memory.state_dict(),
            "engine_version": self.parts.engine.version,
            "pending": [[step, anchors.as_dict()] for step, anchors in self.pending],
            "logs": self.run_dir.sizes(),
        }
        with self._interrupts.held():
            return checkpoint.save(
                self.run_dir.checkpoints, self.step, model=self.parts.model, tokenizer=self.parts.tokenizer,
                optimizer=self.learner.state_dict(), state=state, keep=self.config.train.keep_checkpoints,
            )  # fmt: skip

    def load(self, saved: checkpoint.Checkpoint) -> None:
        """Continue from a checkpoint: all state, and the logs cut back to it.

        Raises:
            InvalidInput: it is not one of this trainer's, or of another policy.
        """
        check_own(saved)
        checkpoint.load_weights(saved, self.parts.model)
        self.learner.load_state_dict(checkpoint.load_optimizer(saved))
        hand_over(self.parts.model, self.parts.engine)
        self.parts.engine.version = int(saved.state["engine_version"])
        self.corrector.load_state_dict(saved.state["corrector"])
        self.schedule.load_state_dict(saved.state["schedule"])
        if saved.state["world_model"] is not None:
            self.parts.world_model.load_state_dict(saved.state["world_model"])
        if self.memory is not None and saved.state.get("memory") is not None:
            self.memory.load_state_dict(saved.state["memory"])
        self.ledger = metrics.Ledger(**saved.state["ledger"])
        self.pending = [(step, self._deferring().take_up(data)) for step, data in saved.state["pending"]]
        paid = {step: result for step, result in self.evaluations().items() if step <= saved.step}
        self.run_dir.truncate(saved.state["logs"])
        for step in sorted(paid.keys() - self.evaluations().keys()):  # made after the checkpoint was written
            self.run_dir.append("metrics.jsonl", {"step": step, "eval": paid[step]})
        self.ledger.recall(self.run_dir.read("rollouts.jsonl"))
        self.step = saved.step

    def close(self) -> None:
        """Release everything; safe to call twice."""
        self.roller.close()
        while self.parts.close:
            self.parts.close.pop()()
        self.learner.close()
        self.trackers.close()

    # -- interruption ------------------------------------------------------------------------------------------------
    @contextmanager
    def _learn_undisturbed(self) -> Iterator[None]:
        """Weights, optimizer, pool and logs change together: no generation and no Ctrl-C in between."""
        with self._interrupts.held(), self.roller.generation.exclusive():
            yield

    def _keep(self) -> None:
        """Save the last finished step, unless it is saved."""
        if self.step == 0:
            return
        if self.step == self._before_step[0]:
            self.schedule.load_state_dict(self._before_step[1])  # the unfinished step never happened
            self.pending = self._before_step[2]
        saved = {path.name for path in checkpoint.checkpoints(self.run_dir.checkpoints)}
        if f"step-{self.step:06d}" not in saved:
            self.save()

    def _save_interrupted(self) -> None:
        where = self.run_dir.path
        if self.step == 0:
            raise Interrupted(f"Interrupted before the first step was finished; nothing to save in {where}.")
        self._keep()
        if self.step >= self.config.train.steps:
            if not self._due():
                return
            raise Interrupted(
                f"Training is finished, all {self.step} steps are saved in {where}; interrupted before its last evaluation "
                f"was, which this does: wmrl train --resume --run-dir {where}"
            )
        raise Interrupted(
            f"Interrupted at step {self.step} of {self.config.train.steps}; saved in {where}. Go on with: wmrl train --resume "
            f"--run-dir {where}"
        )


def check_own(saved: checkpoint.Checkpoint) -> None:
    """Refuse a checkpoint that another program wrote."""
    if "schedule" not in saved.state:
        raise InvalidInput(
            f"{saved.path} is not of this trainer (`wmrl grpo` used to have its own): start a new run with "
            f"policy.model={saved.path / 'policy'}."
        )


def task_at(tasks: Sequence[str], seed: int, position: int) -> str:
    """The task at a position of an endless sequence of shuffled passes over `tasks`: the data cursor is the step alone."""
    if not tasks:
        raise InvalidInput("No tasks to train on: tasks.train names none.")
    epoch, at = divmod(position, len(tasks))
    return tasks[int(np.random.default_rng(seed_of(seed, 3, epoch)).permutation(len(tasks))[at])]
