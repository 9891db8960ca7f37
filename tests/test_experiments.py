"""What starts several training runs on one GPU, and brings their snapshots home."""

import importlib.util
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest


def experiment(name: str) -> ModuleType:
    """experiments/NAME.py, which is no part of the package."""
    path = Path(__file__).parents[1] / "experiments" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"experiments_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_run_is_done_at_its_first_evaluation_from_there_on(tmp_path: Path):
    side_by_side = experiment("side_by_side")
    asked = side_by_side.SideBySide(tmp_path, tmp_path / "runs.txt", until=8_192)
    assert not side_by_side._done(asked, "one")
    (tmp_path / "one").mkdir()
    exams = tmp_path / "one" / "evaluations.jsonl"
    exams.write_text('{"episodes": 4096}\n{"episodes": 9000}')  # the second is still being written
    assert not side_by_side._done(asked, "one")
    exams.write_text('{"episodes": 4096}\n{"episodes": 9000}\n')
    assert side_by_side._done(asked, "one")
    assert not side_by_side._done(replace(asked, until=None), "one")


def test_newest_snapshots_come_home_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bring, there, out = experiment("bring"), tmp_path / "there", tmp_path / "out"
    for name in ("one", "two-b", "three"):
        for episodes in (0, 512):
            place = there / name / "snapshots" / f"episodes-{episodes:08d}"
            place.mkdir(parents=True)
            (place / "part-00000.safetensors").write_text(f"{name} {episodes}")
        (there / name / "config.json").write_text("{}")
        (there / name / "evaluations.jsonl").write_text(
            '{"episodes": 512, "removal_rate": 0.5}\n{"episodes": 1'
        )
    (there / "exams" / "all" / "parts").mkdir(parents=True)
    (there / "exams" / "all" / "results.json").write_text("{}")
    (there / "exams" / "all" / "parts" / "large.npz").write_text("large")
    bring.report_and_copy(bring.Out(there, out))
    with tarfile.open(out / "logs.tgz") as logs:
        assert [name for name in logs.getnames() if "exams/" in name] == ["exams/all/results.json"]
    assert capsys.readouterr().out.count("512: removal 0.50\n") == 3
    assert len(list(out.glob("*.512.part-*"))) == 2
    (there / "one" / "snapshots" / "episodes-00001024").mkdir()
    (there / "one" / "snapshots" / "episodes-00001024" / "manifest.json").write_text("new")
    bring.report_and_copy(bring.Out(there, out))  # the third run, and what is new of the first
    came = tuple(path for path in out.iterdir() if path.name != "logs.tgz")
    assert len(came) == 4 and bring.bring(there, out, 9) == []
    bring.unpack(bring.Home(tmp_path / "home", came))
    for name in ("one", "two-b", "three"):
        place = tmp_path / "home" / name / "snapshots" / "episodes-00000512"
        assert (place / "part-00000.safetensors").read_text() == f"{name} 512"
