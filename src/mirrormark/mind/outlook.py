"""The outlook: how strange things will be, on average over the next second, if the body moves on as every
day.

G is about what is seen now, and a mark behind a hand is not seen: hiding it lowers G as much as taking it off
(docs/notebook.md, runs 15 and 16). What lasts is told apart from what passes by what usually follows. The
outlook learns that from everyday movement alone, with G of later frames as its only teacher.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrormark.mind.numerics import TwoHot
from mirrormark.mind.policy import Foreteller
from mirrormark.mind.reading import Reading


@dataclass(frozen=True)
class OutlookConfig:
    """The outlook network. Defaults: preset paper, which has none."""

    control_steps: int = 0
    """Over how many control steps of everyday movement G is foretold; what is foretold then is the cost of a
    state, instead of its own G (ours; 0 = off, as in the paper; swift: 24)."""
    hidden: int = 256
    """Hidden units (ours)."""
    bins: int = 151
    """Classes of the two-hot (ours)."""
    reach: float = 150.0
    """Its bins span 0 to this, in nats (ours)."""

    def __post_init__(self) -> None:
        if self.control_steps < 0:
            raise ValueError("outlook.control_steps must not be negative: 0 leaves the outlook out.")
        if self.bins < 2 or self.reach <= 0:
            raise ValueError("outlook.bins must be at least 2, outlook.reach above 0 nats.")


class Outlook(Foreteller):
    """Mean G over the next control steps of everyday movement."""

    def __init__(self, reading: Reading, hidden_size: int, config: OutlookConfig):
        two_hot = TwoHot(config.bins, 0.0, config.reach, linear=True)
        super().__init__(reading, hidden_size, config.hidden, two_hot)
