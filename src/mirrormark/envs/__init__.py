"""The mirror-mark task as Gymnasium environments. Importing this package alone loads no MuJoCo."""

EPISODE_CONTROL_STEPS = 100
"""Control steps per episode, 5 s (paper, Table III)."""
