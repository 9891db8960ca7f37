"""The mirror-mark task as Gymnasium environments. Importing this package alone loads no MuJoCo."""

from numbers import Real
from typing import Any

EPISODE_CONTROL_STEPS = 100
"""Control steps per episode, 5 s (paper, Table III)."""


def is_number(value: Any) -> bool:
    """For checks of configurations, which may come from anywhere."""
    return isinstance(value, Real)
