"""mirrormark: an infant, a mirror and a mark.

Importing it registers the Gymnasium environments `mirrormark/Infant-v0`, `mirrormark/Arm-v0` and their
symbolic ablations.
"""

import os
from typing import TYPE_CHECKING, Any

# numba and torch share OpenMP: threads that spin while they wait slow the other one down up to 25 times.
# OpenMP reads this when it is loaded, so it must stand before both.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from mirrormark.envs import bodies

if TYPE_CHECKING:
    from mirrormark.report.commands import examine as examine

__version__ = "0.1.0"

bodies.load()


def __getattr__(name: str) -> Any:
    """`mirrormark.examine`, imported when it is asked for: the exam needs torch."""
    if name == "examine":
        from mirrormark.report.commands import examine

        return examine
    raise AttributeError(f"module 'mirrormark' has no attribute {name!r}")
