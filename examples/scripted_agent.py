"""An agent of one's own takes the mirror-mark exam: `python examples/scripted_agent.py`, or, in this folder,
`mirrormark exam --agent scripted_agent:make_agent --out exams/scripted`.

It learns nothing: while it sees the mark's green, it moves at random, else it keeps still. That removes some
marks, and few where no green is seen.
"""

import numpy as np

HOLD_CONTROL_STEPS = 8
"""How long one random action is held."""
GREEN_PIXELS = 3
"""So many of the 64 × 64 pixels must be green."""


class ScriptedAgent:
    """Acts in n bodies at once."""

    privileged = ("the mark's colour",)  # nobody showed it a mark: its author wrote down the colour
    environment_steps = 0
    gpu_minutes = 0.0

    def reset(self, n: int) -> None:
        self._random = np.random.default_rng(0)
        self._step = 0

    def act(self, observations: dict[str, np.ndarray]) -> np.ndarray:
        if self._step % HOLD_CONTROL_STEPS == 0:
            self._action = self._random.uniform(-1, 1, observations["proprioception"].shape)
        self._step += 1
        red, green, blue = np.moveaxis(observations["vision"].astype(int), -1, 0)
        is_green = (green > red + 70) & (green > blue + 70)
        seen = is_green.sum((1, 2)) >= GREEN_PIXELS
        return self._action * seen[:, None]


def make_agent() -> ScriptedAgent:
    """What `--agent scripted_agent:make_agent` calls."""
    return ScriptedAgent()


if __name__ == "__main__":
    import mirrormark

    mirrormark.examine(make_agent, body="infant", out="exams/scripted")
