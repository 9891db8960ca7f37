"""Every Python example of the README and the docs is run as it stands; links lead somewhere; tables hold
what the exams and evaluations found; the README stays short, and what is tracked stays light."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from experiments.tables import RUNS, by_region

ROOT = Path(__file__).parent.parent
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "archive" / "README.md"]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name != "sweep.md"  # its example reads the folder of a finished sweep; tests/sweep does that
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]

CONDITIONS = {
    "mirror and mark": "mirror",
    "no mirror": "absent",
    "mirror covered": "covered",
    "sham mark": "sham",
    "yoked site": "yoked",
    "untrained agent": "untrained",
    "motor babbling (n = 1,000)": "babbling",
    "i.i.d. actions (n = 1,000)": "iid",
    "mirror delayed by 0.5 s": "delayed-0.5s",
    "mirror delayed by 1 s": "delayed-1s",
    "mirror turned by +10°": "tilt+10",
    "mirror turned by −10°": "tilt-10",
    "mirror 3 cm nearer": "nearer",
    "mirror 3 cm farther": "farther",
    "mark of another colour": "recoloured",
    "smaller mark": "small",
    "mark out of the mirror's view": "unseen",
}
"""Rows of rates, and the exam's names for them."""
REGIONS = {"removed, on the head": ("head", "head_geom"), "removed, on the chest": ("chest", "torso")}
SEEDS = {"each seed": "mirror", "sham, each seed": "sham", "no mirror, each seed": "absent"}
INDICATORS = {
    "mark recovery": ("mark_recovery", 2),
    "G gap between": ("efe_gap_nats", 1),
    "G gap ÷ posture range": ("efe_gap_per_posture_range", 1),
    "imagined ÷ real fall of G": ("dreamed_fall_ratio", 2),
}
"""How rows of the table of indicators begin, the field of evaluations, and decimals."""
EVALUATIONS = {
    "seed 9": "three-infants/seed-9.",
    "seed 10": "three-infants/seed-10.",
    "seed 11": "three-infants/seed-11.",
    "infant before": "former-infant/",
    "arm before": "former-arm/",
    "shipped infant": "infant/",
}


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_runs(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there."


def test_the_readme_has_at_most_700_words():
    assert len(README.read_text().split()) <= 700


def test_what_is_tracked_is_light_enough_to_travel():
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=False, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    weights = ROOT / "src" / "mirrormark" / "weights"
    light = sum(file.stat().st_size for file in files if weights not in file.parents)
    whole = sum(file.stat().st_size for file in files)
    assert light <= 6_000_000 and whole <= 50_000_000, f"{light} bytes without weights, {whole} with them"


def test_the_readmes_table_is_what_the_shipped_infants_exam_found():
    titles, rows = _table(README, "| % of runs")
    (exam,) = _exams(README, re.findall(r"\]\((docs/results/[^)]*report\.html)\)", README.read_text()))
    runs = exam["settings"]["runs"]
    assert titles[0] == f"all (n = {runs})"
    assert set(rows) == {"mirror and mark", "no mirror", "sham mark", "motor babbling (n = 1,000)"}
    found = by_region(pd.read_parquet(RUNS), "shipped infant")
    for title, cells in rows.items():
        whole = _figures(_found(exam, CONDITIONS[title]))
        assert re.findall(r"\d+", cells[0]) == whole, (title, cells)
        assert [cell.replace("*", "") for cell in cells] == found[title.split(" (")[0]], title


def test_the_table_of_results_is_what_the_exams_found():
    titles, rows = _table(RESULTS, "| % of runs")
    exams = _exams(RESULTS, [re.search(r"\]\(([^)]*)\)", cell)[1] for cell in rows.pop("all of it")])
    assert rows.pop("verdict") == [exam["verdict"]["status"] for exam in exams]
    worlds = [(exam["settings"]["first_exam_seed"], exam["settings"]["runs"]) for exam in exams]
    assert rows.pop("worlds") == [f"{first}–{first + runs - 1}" for first, runs in worlds]
    runs = [exam["conditions"]["mirror"]["n"] for exam in exams]
    assert [re.search(r"\(n = (\d+)\)", title)[1] for title in titles] == [str(n) for n in runs]
    for title, condition in SEEDS.items():
        assert rows.pop(title) == [_each_seed(exam, condition) for exam in exams], title
    for title, sites in REGIONS.items():
        found = [next(exam["by_site"][site] for site in sites if site in exam["by_site"]) for exam in exams]
        assert [re.findall(r"\d+", cell) for cell in rows.pop(title)] == [_figures(f) for f in found], title
    assert set(rows) == set(CONDITIONS)
    for title, cells in rows.items():
        found = [_figures(_found(exam, CONDITIONS[title])) for exam in exams]
        assert [re.findall(r"\d+", cell) for cell in cells] == found, title


def test_the_fall_of_g_is_what_the_exams_found():
    text = RESULTS.read_text()
    infants = ("infant/results.json", "former-infant/results.json", "three-infants/worlds-0-to-319.json")
    for place in (*infants, "former-arm/results.json"):
        shift = json.loads((RESULTS.parent / "results" / place).read_text())["free_energy"]["shift"]
        fall, least, most = -shift["estimate"], -shift["interval"][1], -shift["interval"][0]
        assert re.search(rf"by {fall:.1f}( nats)? \[{least:.1f}, {most:.1f}\]", text), place


def test_the_indicators_are_those_of_the_last_evaluations():
    titles, rows = _table(RESULTS, "| indicator")
    assert titles == ["target", *EVALUATIONS]
    assert len(rows) == len(INDICATORS)
    for place, column in zip(EVALUATIONS.values(), zip(*(row[1:] for row in rows.values()))):
        lines = (RESULTS.parent / "results" / f"{place}evaluations.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        for title, cell in zip(rows, column):
            ((field, decimals),) = (value for start, value in INDICATORS.items() if title.startswith(start))
            assert float(cell.replace("−", "-")) == round(last[field], decimals), (title, place)


def _table(page: Path, start: str) -> tuple[list[str], dict[str, list[str]]]:
    """Titles of the columns, and the cells of each row by its title, of the first table that starts so."""
    lines = page.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(start))
    end = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    head, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[first:end])
    return head[1:], {title: cells for title, *cells in rows}


def _exams(page: Path, links: list[str]) -> list[dict]:
    """The figures behind links to reports or figures."""
    files = [page.parent / re.sub(r"report\.html$", "results.json", link) for link in links]
    return [json.loads(file.read_text()) for file in files]


def _found(exam: dict, condition: str) -> dict | None:
    return exam["yoked"] if condition == "yoked" else exam["conditions"].get(condition)


def _figures(found: dict | None) -> list[str]:
    """Rate and interval in percent; none where the condition was not examined."""
    return [f"{100 * figure:.0f}" for figure in (found["rate"], *found["interval"])] if found else []


def _each_seed(exam: dict, condition: str) -> str:
    seeds = exam["conditions"][condition]["seeds"]
    return ", ".join(f"{s['training_seed']}: {100 * s['successes'] / s['n']:.0f}" for s in seeds)
