"""Every Python example of the README and the docs is run as it stands; links lead somewhere; tables
hold what the exams found."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name != "sweep.md"  # its example reads the folder of a finished sweep; tests/sweep does that
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]

TABLES = [ROOT / "README.md", ROOT / "docs" / "results.md"]
"""Pages with a table of exams: a row a condition, a column an exam, whose figures its last row links to."""
ROWS = {
    "mirror and mark": "mirror",
    "no mirror": "absent",
    "mirror covered": "covered",
    "sham mark": "sham",
    "yoked site": "yoked",
    "untrained agent": "untrained",
    "motor babbling (n = 1,000)": "babbling",
    "random actions, i.i.d. (n = 1,000)": "iid",
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
CONTROLS = 8
"""So many of them every table has: the mark and all that the verdict rests on."""


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there."


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.name)
def test_the_table_is_what_the_exams_found(page):
    named = _table(page)
    links = [re.search(r"\]\(([^)]*)\)", cell)[1] for cell in named["all of it"]]
    exams = [
        json.loads((page.parent / re.sub(r"report\.html$", "results.json", t)).read_text()) for t in links
    ]
    assert named["verdict"] == [exam["verdict"]["status"] for exam in exams]
    assert list(ROWS)[:CONTROLS] == [title for title in named if title in ROWS][:CONTROLS]
    for title in named.keys() & ROWS.keys():
        for cell, exam in zip(named[title], exams, strict=True):
            assert re.findall(r"\d+", cell) == _figures(exam, ROWS[title]), (title, cell)
    for cell, exam in zip(named["each seed"], exams, strict=True):
        seeds = exam["conditions"]["mirror"]["seeds"]
        each = [f"{s['training_seed']}: {100 * s['successes'] / s['n']:.0f}" for s in seeds]
        assert cell == ", ".join(each)


def _table(page: Path) -> dict[str, list[str]]:
    """The cells of a page's first table of exams, by the title of their row."""
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| % of runs"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    rows = [line.strip("| ").split(" | ") for line in lines[start + 2 : end]]
    return {row[0].strip("* "): row[1:] for row in rows}


def _figures(exam: dict, key: str) -> list[str]:
    """Rate and interval in percent; none where the condition was not sat."""
    found = exam["yoked"] if key == "yoked" else exam["conditions"].get(key)
    return [f"{100 * figure:.0f}" for figure in (found["rate"], *found["interval"])] if found else []
