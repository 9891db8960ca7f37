"""What the command shows while an exam goes on."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from mirrormark.exam import candidates, commands
from mirrormark.exam.commands import ExamProgress
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.run import Settings

SMALL = Settings(runs=1, chance_runs=1, conditions=(EXAM, "iid"))


def test_into_a_file_goes_one_line_for_each_finished_condition():
    log = io.StringIO()
    with ExamProgress(Console(file=log)) as progress:
        progress.begin("mirror and mark", 0, 2)
        assert log.getvalue() == ""
        progress.begin("no mirror", 1, 2)
        assert log.getvalue() == "1/2 mirror and mark (0 s)\n"
        progress.begin("writing tables", 2, 2)
    assert log.getvalue().splitlines() == ["1/2 mirror and mark (0 s)", "2/2 no mirror (0 s)"]


def test_in_a_terminal_there_is_a_bar():
    screen = io.StringIO()
    with ExamProgress(Console(file=screen, force_terminal=True, width=100)) as progress:
        progress.begin("mirror and mark", 0, 2)
        progress.begin("no mirror", 1, 2)
    assert "1/2" in screen.getvalue() and "mirror and mark (0 s)" not in screen.getvalue()


def test_a_folder_is_refused_before_anything_is_shown(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    screen = io.StringIO()
    with pytest.raises(ValueError, match="empty folder"):
        commands.examine(
            [candidates.untrained("smoke")], tmp_path, SMALL, Console(file=screen, force_terminal=True)
        )
    assert screen.getvalue() == ""


def test_an_exam_into_a_file_lists_its_conditions(tmp_path: Path):
    log = io.StringIO()
    commands.examine([candidates.untrained("smoke")], tmp_path / "exam", SMALL, Console(file=log))
    lines = [line.split(" (")[0] for line in log.getvalue().splitlines() if line[0].isdigit()]
    assert lines == ["1/2 mirror and mark", "2/2 random actions, i.i.d."]
