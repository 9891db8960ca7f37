"""The exam's two tables, as Parquet with a fixed schema: a row a run (episodes), a row a step (steps).

Everything that is shown is drawn from these tables and from results.json; nothing is measured twice.
"""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false

import os
from pathlib import Path

import pandas as pd

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
    "eye": "str",  # "pixels" or "symbolic" (an ablation: told where the mark is seen)
    "removed": "bool",
    "removed_s": "float64",  # NaN where it was not removed
    "hand": "str",  # hand nearest to the mark: at removal, else at the closest approach
    "site": "str",  # geom that carries the mark
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
    "expected_free_energy_nats": "float32",  # NaN where the player has none
    "mirror_share_of_view": "float32",  # NaN where vision was off
    "mark_px": "float32",  # mark pixels seen in the mirror; NaN where vision was off
    "mark_in_view": "float32",  # 1 if the mark's place in the mirror lies in the field of view, hidden or not
}


def check(table: pd.DataFrame, schema: dict[str, str], name: str) -> pd.DataFrame:
    """The table with exactly the schema's columns, in order and type; a clear sentence if one is missing."""
    missing = [column for column in schema if column not in table.columns]
    if missing:
        raise ValueError(
            f"{name}: column {missing[0]!r} is missing; write the table anew with `mirrormark exam`."
        )
    return table[list(schema)].astype(schema)


def write(table: pd.DataFrame, path: Path, schema: dict[str, str]) -> None:
    """Write under a temporary name, then rename: a table on disk is always whole."""
    partial = path.with_name(path.name + ".partial")
    check(table, schema, path.name).to_parquet(partial, index=False)
    os.replace(partial, path)


def features(path: Path, schema: dict[str, str]) -> pd.DataFrame:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; run `mirrormark exam … --out {path.parent}` first.")
    return check(pd.read_parquet(path), schema, path.name)
