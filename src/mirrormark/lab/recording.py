"""Recordings of the lab: a film and a table, from the snapshots kept while it ran."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import imageio.v2 as imageio
import numba
import numpy as np
import pandas as pd

from mirrormark.envs.scene import Scene
from mirrormark.envs.senses import picture

if TYPE_CHECKING:
    from mirrormark.lab.session import Snapshot

LONGEST_CONTROL_STEPS = 1200
"""A recording ends by itself after a simulated minute."""
SIDE_PX = 384


@dataclass(frozen=True)
class Row:
    """One control step: the action, and the state after it."""

    t_s: float
    body: str
    agent: str
    moved_by: str
    mirror: str
    mark_on: bool
    mark_px: int
    removed_by_itself: bool
    distance_m: float
    expected_free_energy_nats: float
    actions: dict[str, float]


class Recorder:
    """Keeps snapshots while it runs; they are drawn later, because that is slower than the simulation."""

    def __init__(self) -> None:
        self.running = False
        self._kept: list[tuple[Snapshot, Scene]] = []
        self._rows: list[Row] = []

    def start(self) -> None:
        self.running, self._kept, self._rows = True, [], []

    def keep(self, snapshot: "Snapshot", row: Row, scene: Scene) -> None:
        self._kept.append((snapshot, scene))
        self._rows.append(row)
        self.running = len(self._rows) < LONGEST_CONTROL_STEPS

    def __len__(self) -> int:
        return len(self._rows)

    def stop(self) -> "Recording":
        """What was kept, to be written later."""
        self.running = False
        recording = Recording(self._kept, self._rows)
        self._kept, self._rows = [], []
        return recording


class Recording:
    """Snapshots and rows of one recording."""

    def __init__(self, kept: "list[tuple[Snapshot, Scene]]", rows: list[Row]) -> None:
        if not rows:
            raise ValueError("nothing was recorded: let the simulation run for a moment before you stop.")
        self._kept, self.rows = kept, rows

    def table(self) -> pd.DataFrame:
        """A row a control step; actions in columns named after their joints."""
        flat = [
            {**{k: v for k, v in asdict(row).items() if k != "actions"},
             **{f"action_{joint}": value for joint, value in row.actions.items()}}
            for row in self.rows
        ]  # fmt: skip
        return pd.DataFrame(flat)

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """NAME.mp4 and NAME.parquet in the folder; each appears whole or not at all."""
        numba.set_num_threads(1)  # of this thread: the simulation goes on beside it
        folder.mkdir(parents=True, exist_ok=True)
        film, table = folder / f"{name}.mp4", folder / f"{name}.parquet"
        half = folder / f".{name}.writing"
        self.table().to_parquet(half, index=False)
        os.replace(half, table)
        half = folder / f".{name}.writing.mp4"
        with imageio.get_writer(half, fps=20, codec="libx264", quality=7, macro_block_size=8) as out:
            for snapshot, scene in self._kept:
                out.append_data(_frame(snapshot, scene))
        os.replace(half, film)
        return film, table


def _frame(snapshot: "Snapshot", scene: Scene) -> np.ndarray:
    """A third person's view beside the eye's, enlarged without smoothing."""
    outside = picture(scene, snapshot.sim_state, "behind", SIDE_PX, SIDE_PX)[0]
    zoom = SIDE_PX // snapshot.picture.shape[0]
    return np.concatenate([outside, snapshot.picture.repeat(zoom, 0).repeat(zoom, 1)], axis=1)
