"""Every Python example of the README and the docs is run as it stands; links lead somewhere; the README's
figures are the exams'."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mirrormark.exam import conditions

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name != "sweep.md"  # its example reads the folder of a finished sweep; tests/sweep does that
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]

README_ROWS = {
    "mirror and mark": "mirror",
    "no mirror": "absent",
    "mirror covered": "covered",
    "sham mark (invisible)": "sham",
    "*yoked* site: another place on the body, same runs": "yoked",
    "untrained mind": "untrained",
    "everyday movement (n = 1,000)": "everyday",
    "mirror delayed by 1 s": "delayed-1s",
    "mirror turned by +10°": "tilt+10",
    "mirror turned by −10°": "tilt-10",
    "mirror 3 cm nearer": "nearer",
    "mirror 3 cm farther": "farther",
    "mark of another colour": "recoloured",
    "smaller mark": "small",
    "mark out of the mirror's view": "unseen",
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there."


def test_the_readmes_table_is_what_the_exams_found():
    lines = (ROOT / "README.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| % of runs"))
    rows = [line.strip("| ").split(" | ") for line in lines[start + 2 : start + 19]]
    named = {row[0]: row[1:] for row in rows}
    exams = [
        json.loads((ROOT / re.sub(r"report\.html$", "results.json", target)).read_text())
        for target in re.findall(r"\]\(([^)]*)\)", " ".join(named.pop("all of it")))
    ]
    assert named.pop("verdict") == [exam["verdict"]["status"] for exam in exams] == ["passed"] * 5
    assert len(named) == len(README_ROWS) == 15
    printed = first_sitting()
    for title, key in README_ROWS.items():
        for cell, exam in zip(named[title], exams, strict=True):
            if cell.endswith("°"):
                assert re.findall(r"\d+", cell) == printed[conditions.title(key)], (title, cell)
                continue
            found = exam["yoked"] if key == "yoked" else exam["conditions"][key]
            figures = [found["rate"], *found["interval"]]
            assert re.findall(r"\d+", cell) == [f"{100 * figure:.0f}" for figure in figures], (title, cell)


def first_sitting() -> dict[str, list[str]]:
    """What the infants' exam on a GPU printed (run 26): rate and interval of each condition, in percent."""
    text = (ROOT / "docs/results/run-26/first-sitting.txt").read_text().split("Not passed")[0]
    lines = re.findall(r"^  (\S.*?) {2,}(\d+)%  \((\d+)–(\d+)%\)", text, re.MULTILINE)
    return {title: figures for title, *figures in lines}
