"""`Alarm`: does what the audit of the anchors asks for, and says what it did."""

from __future__ import annotations

import logging

from wmrl_envs.correction import AnchorSchedule, Corrector

log = logging.getLogger(__name__)

_EVERY = 64  # pairs


class Alarm:
    """Follows the audit of a corrector: more anchors while it is alarmed, and no weight for predictions that mislead.

    Args:
        corrector: whose audit.
        schedule: whose anchor fraction; raised only if it is adaptive.

    Attributes:
        says: what the audit asked for at the last look: "none", "raise", "freeze" or "stop".
    """

    def __init__(self, corrector: Corrector, schedule: AnchorSchedule):
        self._corrector, self._schedule = corrector, schedule
        self._seen = 0  # pairs at the last look
        self.says: str = "none"

    @property
    def freezes(self) -> bool:
        """Whether predicted groups should count nowhere."""
        return self.says in ("freeze", "stop")

    def heed(self) -> None:
        """Look at the audit, every 64 pairs."""
        if self._corrector.n_pairs - self._seen < _EVERY:
            return
        self._seen = self._corrector.n_pairs
        action, before = self._corrector.action, self._schedule.fraction
        self._schedule.adapt(action != "none")
        if action != self.says:
            self._tell(action, before)
            self.says = action

    def _tell(self, action: str, before: float) -> None:
        done = f"the anchor fraction is {self._schedule.fraction:g} (it was {before:g})"
        if action in ("freeze", "stop"):
            done += " and predicted groups weigh 0 in infos['wmrl']['weight'] until the alarm is over"
        figures = {k: round(v, 4) for k, v in self._corrector.metrics().items() if k.startswith("audit_")}
        level = logging.WARNING if action != "none" else logging.INFO
        log.log(level, "The audit of the anchors says %r (before: %r): %s. Its figures: %s", action, self.says, done, figures)
