"""The exam's tables with their fixed schemas: a row a run (episodes), a row a step (steps), and runs.csv.

Everything that is shown comes from these tables and from results.json; nothing is measured twice.
docs/exam.md documents runs.csv, the table to pass on: a row a run, no Parquet reader needed.
"""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false

import io
from pathlib import Path

import pandas as pd

from mirrormark.training.checkpoint import replace_bytes

KEYS: dict[str, str] = {
    "run": "str",  # name of the run folder
    "checkpoint": "str",  # which snapshot of it; "-" where no agent acted
    "body": "str",
    "condition": "str",
    "training_seed": "int64",  # the cluster of every statistic; -1 where no agent acted
    "exam_seed": "int64",  # numbers worlds only: the same reset and site in each condition
    "episode": "int64",
}
"""Columns that name a run; both tables carry them."""

EPISODES: dict[str, str] = KEYS | {
    "tone": "str",
    "eye": "str",  # "pixels" or "symbolic" (an ablation: the observation says where the mark is seen)
    "removed": "bool",
    "removed_s": "float64",  # NaN where it was not removed
    "hand": "str",  # hand nearest to the mark: at removal, else at the closest approach
    "site": "str",  # geom that carries the mark
    "region": "str",  # part of the body that the geom belongs to: head, chest, …
    "side": "str",  # left, right or middle of the body
    "site_x_m": "float64",  # in the frame of the geom's body
    "site_y_m": "float64",
    "site_z_m": "float64",
    "mark_px_start": "int64",  # mark pixels in the first frame; -1 where vision was off
    "yoked_touched": "bool",
}

STEPS: dict[str, str] = KEYS | {
    "t_s": "float64",
    "distance_m": "float32",  # nearer hand to the mark, surface to surface
    "yoked_distance_m": "float32",
    "expected_free_energy_nats": "float32",  # NaN where the agent has none
    "mirror_share_of_view": "float32",  # NaN where vision was off
    "mark_px": "float32",  # mark pixels seen in the mirror; NaN where vision was off
    "mark_in_view": "float32",  # 1 if the mark's place in the mirror lies in the field of view, hidden or not
}

CSV_COLUMNS: dict[str, str] = {
    "agent": "run",
    "checkpoint": "checkpoint",
    "seed": "training_seed",
    "body": "body",
    "world": "exam_seed",
    "condition": "condition",
    "eye": "eye",
    "site": "site",
    "region": "region",
    "side": "side",
    "site_x_m": "site_x_m",
    "site_y_m": "site_y_m",
    "site_z_m": "site_z_m",
    "mark_px_start": "mark_px_start",
    "removed": "removed",
    "latency_s": "removed_s",
    "hand": "hand",
    "yoked": "yoked_touched",
}
"""Column of runs.csv → column of episodes; `exam_version` and `privileged` are added in front."""


def region(geom: str) -> str:
    """The part of the body that a geom is named after: head_geom is the head."""
    return geom.removesuffix("_geom").replace("_", " ")


def check(table: pd.DataFrame, schema: dict[str, str], name: str) -> pd.DataFrame:
    """The table with exactly the schema's columns, in order and type; a clear sentence if one is missing."""
    missing = [column for column in schema if column not in table.columns]
    if missing:
        raise ValueError(
            f"{name}: column {missing[0]!r} is missing; write the table anew with `mirrormark exam`."
        )
    return table[list(schema)].astype(schema)


def to_bytes(table: pd.DataFrame, schema: dict[str, str], name: str) -> bytes:
    """The table as a Parquet file's content."""
    buffer = io.BytesIO()
    check(table, schema, name).to_parquet(buffer, index=False)
    return buffer.getvalue()


def from_bytes(data: bytes, schema: dict[str, str], name: str) -> pd.DataFrame:
    return check(pd.read_parquet(io.BytesIO(data)), schema, name)


def write(table: pd.DataFrame, path: Path, schema: dict[str, str]) -> None:
    """Replace the file at once: a table on disk is always whole."""
    replace_bytes(path, to_bytes(table, schema, path.name))


def read(path: Path, schema: dict[str, str]) -> pd.DataFrame:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; run `mirrormark exam … --out {path.parent}` first.")
    return from_bytes(path.read_bytes(), schema, path.name)


def write_csv(episodes: pd.DataFrame, path: Path, version: str, privileged: dict[str, str]) -> None:
    """runs.csv: one row a run. `privileged`: what each agent knows beyond its senses, by `run`."""
    table = pd.DataFrame({name: episodes[column] for name, column in CSV_COLUMNS.items()})
    table.insert(0, "exam_version", version)
    table.insert(3, "privileged", [privileged.get(run, "") for run in episodes["run"]])
    replace_bytes(path, table.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode())
