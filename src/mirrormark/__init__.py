"""mirrormark: an infant, a mirror and a mark.

Importing it registers the Gymnasium environments `mirrormark/Infant-v0`, `mirrormark/Arm-v0` and their symbolic
ablations.
"""

from mirrormark.world.registration import register_envs

__version__ = "0.1.0"

register_envs()
