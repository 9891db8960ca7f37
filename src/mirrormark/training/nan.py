"""When losses stop being finite: keep what was learned so far and a batch."""

from pathlib import Path
from typing import Any

from mirrormark.training import checkpoint
from mirrormark.training.env_config import EnvConfig
from mirrormark.training.learner import Learner
from mirrormark.training.replay_buffer import ReplayBuffer
from mirrormark.training.run_folder import to_json
from mirrormark.training.schedule import Iteration
from mirrormark.training.weights import describe


class NotFinite(RuntimeError):
    """Too many steps in a row had a loss or gradient that is not finite."""

    def __init__(self, iteration: int, in_a_row: int, place: Path | None) -> None:
        where = f"batch and weights are in {place}" if place else "no dump was asked for"
        super().__init__(
            f"Iteration {iteration}: {in_a_row} train steps in a row were not finite and were skipped; "
            f"{where}"
        )
        self.place = place


def dump(learner: Learner, buffer: ReplayBuffer, iteration: Iteration, folder: Path, env: EnvConfig) -> Path:
    """Keep the number of steps taken, weights and optimisers as those steps left them, and a batch that is
    drawn as theirs were. A skipped step changes nothing, so the weights are still the ones it failed on."""
    c = learner.config
    metadata = describe(
        learner.agent, env, iteration=iteration.index, step=learner.steps, stages=list(iteration.stages)
    )
    metadata["training"] = to_json(c)
    tree: dict[str, Any] = {"metadata": metadata, "learner": learner.state()}
    if iteration.stages == ("tokenizer",):
        frames = buffer.frames(c.batch.tokenizer_frames, c.batch.tokenizer_marked_share, babbling_only=True)
        tree["batch"] = {"observation": frames}
    else:
        tree["batch"] = buffer.sequences(c.batch.sequences, c.batch.sequence_frames)._asdict()
    return checkpoint.save(folder, f"iteration-{iteration.index:08d}", tree)
