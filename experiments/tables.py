"""Tables of README and docs/results.md, from docs/results/runs.parquet: a row for every run they cite.

python experiments/tables.py            # prints them
python experiments/tables.py add NAME RUNS.csv    # adds an exam's runs.csv as the agents NAME
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from mirrormark.exam.statistics import wilson

RUNS = Path(__file__).parents[1] / "docs" / "results" / "runs.parquet"
COLUMNS = (
    "agent", "seed", "world", "condition", "site", "region", "removed", "latency_s", "hand", "yoked",
)  # fmt: skip
SHOWN = {
    "mirror": "mirror and mark",
    "absent": "no mirror",
    "sham": "sham mark",
    "babbling": "motor babbling",
}


def cell(rows: Any) -> str:
    """Rate and Wilson's interval in percent."""
    low, high = wilson(int(rows.removed.sum()), len(rows))
    return f"{100 * rows.removed.mean():.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def by_region(runs: pd.DataFrame, agent: str) -> dict[str, list[str]]:
    """README's table: a row a condition; all runs, head, chest."""
    own = runs[runs.agent.isin([agent, f"{agent} chance"])]
    parts = {name: own[own.condition == name] for name in SHOWN}
    return {
        SHOWN[name]: [cell(rows), *(cell(rows[rows.region == region]) for region in ("head", "chest"))]
        for name, rows in parts.items()
    }


def by_seed(runs: pd.DataFrame, agent: str) -> dict[str, str]:
    """Rates of each training seed in percent, and by region."""
    own, found = runs[runs.agent == agent], {}
    for name in ("mirror", "absent", "covered", "sham", "untrained"):
        for region in (None, "head", "chest"):
            rows = own[(own.condition == name) & ((own.region == region) | (region is None))]
            rates = rows.groupby("seed").removed.mean()
            found[name + (f", {region}" if region else "")] = ", ".join(f"{100 * rate:.0f}" for rate in rates)
    return found


def add(name: str, file: Path) -> None:
    """Put an exam's runs into the table, in place of earlier ones of that name."""
    new = pd.read_csv(file)
    chance = new["agent"] == "chance"
    new["agent"] = [f"{name} chance" if one else name for one in chance]
    kept = pd.read_parquet(RUNS) if RUNS.exists() else pd.DataFrame(columns=list(COLUMNS))
    kept = kept[~kept.agent.isin([name, f"{name} chance"])]
    parts = [part for part in (kept, new[list(COLUMNS)]) if len(part)]
    pd.concat(parts, ignore_index=True).to_parquet(RUNS, compression="zstd", index=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["add"]:
        add(sys.argv[2], Path(sys.argv[3]))
    else:
        table = pd.read_parquet(RUNS)
        for row, cells in by_region(table, "shipped infant").items():
            print(" | ".join((row, *cells)))
        for agent in ("swift, today", "swift, as it was"):
            print(agent)
            for row, cells in by_seed(table, agent).items():
                print(f"  {row}: {cells}")
