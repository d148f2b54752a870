"""What was paid: real and predicted steps and episodes, and resets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass
class Bill:
    """Counts since the environment was made.

    Attributes:
        real_steps: steps of the base environments that were really taken (or executed); with a reward model, all of them.
        real_episodes: finished episodes that were paid for real (anchors).
        predicted_steps: steps of the base environments that a world model answered instead.
        predicted_episodes: finished episodes that were paid by prediction.
        resets: real resets of the base environments.
    """

    real_steps: int = 0
    real_episodes: int = 0
    predicted_steps: int = 0
    predicted_episodes: int = 0
    resets: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def load(self, counts: Mapping[str, int]) -> None:
        """Go on counting from these."""
        for name, count in counts.items():
            setattr(self, name, int(count))

    def end(self, anchored: bool) -> None:
        """An episode is over."""
        if anchored:
            self.real_episodes += 1
        else:
            self.predicted_episodes += 1
