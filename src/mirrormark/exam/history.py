"""Curves over training, from a run folder's evaluations.jsonl (Fig. 4) and snapshots (Fig. 3b)."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from mirrormark.agent.acting import encode
from mirrormark.exam.candidates import Candidate, Examinee
from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.recording import senses_of
from mirrormark.training.run_folder import read_lines
from mirrormark.training.weights import load_weights

TRAINING = {
    "run": "str",
    "training_seed": "int64",
    "episodes": "int64",
    "removal_rate": "float64",
    "n": "int64",  # runs behind the rate
    "distance_m": "float64",  # mean over runs and time
    "distance_p05_m": "float64",  # of runs; NaN where the run did not keep it
    "distance_p95_m": "float64",
    "chance_removal_rate": "float64",
    "chance_distance_m": "float64",
    "mark_recovery": "float64",
    "efe_gap_nats": "float64",
    "efe_gap_per_posture_range": "float64",
}
"""training.parquet: one row for each evaluation of each run."""

SCORED = {
    "run": "str",
    "snapshot": "str",
    "which": "str",  # first or last
    "t_s": "float64",
    "expected_free_energy_nats": "float64",
    "removed_s": "float64",
}
"""scored.parquet: G of one recorded run of the exam, by the first and by the last snapshot."""


def training(candidates: Sequence[Examinee]) -> pd.DataFrame:
    """The evaluations of all runs that have any."""
    rows = []
    for candidate in candidates:
        if candidate.folder is None or candidate.costless:
            continue
        n = _runs_each(candidate.folder)
        for point in read_lines(candidate.folder / "evaluations.jsonl"):
            known = {name: point.get(name, np.nan) for name in TRAINING}
            if point.get("removal_rate") is not None:
                rows.append(known | {"run": candidate.run, "training_seed": candidate.training_seed, "n": n})
    return pd.DataFrame(rows, columns=list(TRAINING)).astype(TRAINING)


def _runs_each(folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text())
    return int(config["training"]["evaluation"]["policy_episodes"])


@torch.no_grad()
def scored(candidate: Examinee, recording: dict[str, np.ndarray]) -> pd.DataFrame:
    """Fig. 3b: G of every frame of a recorded run, early and late in training. Empty without snapshots."""
    if not isinstance(candidate, Candidate):
        return pd.DataFrame(columns=list(SCORED)).astype(SCORED)
    found = sorted((candidate.folder / "snapshots").glob("*/manifest.json")) if candidate.folder else []
    tables = []
    for which, manifest in zip(("first", "last"), (found[0], found[-1])) if len(found) > 1 else ():
        agent = load_weights(manifest.parent, candidate.agent.device).agent
        with torch.random.fork_rng():
            torch.manual_seed(0)
            tokens = encode(agent, senses_of(recording, 0), sample=False)
        g = agent.expected_free_energy(tokens).double().cpu().numpy()
        tables.append(
            pd.DataFrame(
                {
                    "run": candidate.run,
                    "snapshot": manifest.parent.name,
                    "which": which,
                    "t_s": (CONTROL_STEP_S * np.arange(len(g))).round(6),
                    "expected_free_energy_nats": g,
                    "removed_s": float(recording["removed_s"][0]),
                }
            )
        )
    return pd.concat(tables).astype(SCORED) if tables else pd.DataFrame(columns=list(SCORED)).astype(SCORED)
