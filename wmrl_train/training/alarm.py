"""What the audit's alarm does to a run: what costs no execution is done, what costs some is offered with its price."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_envs.correction.audit import Action
from wmrl_train.config import Config

log = logging.getLogger(__name__)


class Alarm:
    """Heeds the audit of the anchors as `correction.on_alarm` says.

    * "warn": says what the audit asks for, does nothing.
    * "free": leaves predicted groups out of the update while the audit asks to freeze them; that costs nothing. More anchors
      and a stop are only spoken of.
    * "act": also doubles the anchors, up to half of the groups, and stops the run.
    """

    def __init__(self, config: Config):
        self.mode, self._fraction = config.correction.on_alarm, config.anchors.fraction
        self._episodes = config.rollout.groups * config.rollout.group_size
        self.acts = self.mode == "act"
        self._said: Action = "none"
        self._mismatch = config.optim.mismatch_alarm

    def mismatch(self, learned: Mapping[str, float]) -> None:
        """Say once when what samples is no longer the policy that learns."""
        found = learned.get("mismatch_kl", 0.0)
        if self._mismatch is not None and found > self._mismatch:
            log.warning(
                "policy/mismatch_kl is %.3g, above optim.mismatch_alarm=%.3g: the sampler's log-probabilities are not the "
                "learner's. Look at policy.dtype and policy.engine, or at anchors.lag; importance weights (optim.is_cap) make "
                "up for a part of it.",
                found, self._mismatch,
            )  # fmt: skip
            self._mismatch = None

    def freezes(self, action: Action) -> bool:
        """Whether predicted groups are left out of the update."""
        return (action == "freeze" and self.mode != "warn") or (action == "stop" and self.mode == "free")

    def stops(self, action: Action) -> bool:
        """Whether the run ends here."""
        return action == "stop" and self.acts

    def heed(self, corrector: Corrector, schedule: AnchorSchedule) -> None:
        """Once a step, after its pairs: raise or lower the anchors where that is allowed, and say what is new."""
        action = corrector.action
        if self.acts:
            schedule.adapt(action in ("raise", "freeze"))
        if action != self._said:
            level = logging.INFO if action == "none" else logging.WARNING
            log.log(level, "The audit of the anchors: %s", self._sentence(action, schedule))
            self._said = action

    def _sentence(self, action: Action, schedule: AnchorSchedule) -> str:
        if action == "none":
            return "what predictions like best is worth what they say again; nothing is held back."
        found = "what predictions like best is worth less than they say"
        more = round((min(2 * self._fraction, 0.5) - self._fraction) * self._episodes)
        raise_offer = f"correction.on_alarm=act would execute about {max(more, 0)} more programs a step until it is quiet"
        if self.acts:
            done = {"raise": "no predicted group is left out", "freeze": "predicted groups are left out of the update",
                    "stop": "the run stops"}[action]  # fmt: skip
            return f"{found}: anchors raised to {schedule.fraction:.2f} of the groups, {done}."
        if self.freezes(action):
            return (
                f"{found}: predicted groups are left out of the update while this lasts (no execution is added); {raise_offer}."
            )
        return f"{found}: nothing was changed; {raise_offer}."
