"""When losses stop being finite: keep what was learned so far and a batch."""

from pathlib import Path
from typing import Any

from mirrormark.life import checkpoint
from mirrormark.life.learner import Learner
from mirrormark.life.memory import Memory
from mirrormark.life.run import to_json
from mirrormark.life.schedule import Lap
from mirrormark.life.setup import WorldSetup
from mirrormark.life.weights import describe


class NotFinite(RuntimeError):
    """Too many steps in a row had a loss or gradient that is not finite."""

    def __init__(self, lap: int, in_a_row: int, place: Path | None) -> None:
        where = f"batch and weights are in {place}" if place else "no dump was asked for"
        super().__init__(
            f"Lap {lap}: {in_a_row} train steps in a row were not finite and were skipped; {where}"
        )
        self.place = place


def dump(learner: Learner, memory: Memory, lap: Lap, folder: Path, world: WorldSetup) -> Path:
    """Keep the number of steps taken, weights and optimisers as those steps left them, and a batch that is
    drawn as theirs were. A skipped step changes nothing, so the weights are still the ones it failed on."""
    c = learner.config
    about = describe(learner.mind, world, lap=lap.index, step=learner.steps, stages=list(lap.stages))
    about["learner"] = to_json(c)
    tree: dict[str, Any] = {"about": about, "learner": learner.state()}
    if lap.stages == ("codec",):
        tree["batch"] = {"observation": memory.frames(c.codec_frames, c.codec_marked_share)}
    else:
        tree["batch"] = memory.sequences(c.world_sequences, c.world_frames)._asdict()
    return checkpoint.save(folder, f"lap-{lap.index:08d}", tree)
