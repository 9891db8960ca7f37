"""Finished parts on disk: what is not as it was written is run again, alone, and says so."""

import io
import json
import warnings

import pandas as pd
import pytest
import torch

from mirrormark.exam import candidates, commands, parts, run
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.run import Settings

SMALL = Settings(runs=2, chance_runs=2, conditions=(EXAM, "absent", "iid"))
TABLES = ("episodes.parquet", "steps.parquet", "results.json", "runs.csv")


@pytest.fixture(scope="module")
def agent():
    torch.set_num_threads(1)
    return candidates.untrained("smoke")


@pytest.fixture(scope="module")
def written(agent, tmp_path_factory):
    """Every file of a finished exam."""
    out = tmp_path_factory.mktemp("whole") / "exam"
    commands.examine([agent], out, SMALL)
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def out(written, tmp_path):
    for name, content in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def ran(monkeypatch):
    """Conditions that are run."""
    real, names = run._run, []

    def counted(examinee, setup, condition, settings):
        names.append(condition.name)
        return real(examinee, setup, condition, settings)

    monkeypatch.setattr(run, "_run", counted)
    return names


def changed_value(content: bytes) -> bytes:
    """The same table but for one value: only a checksum can tell."""
    table = pd.read_parquet(io.BytesIO(content))
    table["removed"] = ~table["removed"]
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


DAMAGE = {
    "one bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "half": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "gone": None,
}


def damage(path, how):
    change = DAMAGE.get(how, how)
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize(
    ("file", "again"),
    [
        ("absent.episodes.parquet", "absent"),
        ("absent.manifest.json", "absent"),
        ("recording.npz", EXAM),
        ("probes.json", "probes"),
    ],
)
def test_a_damaged_part_is_run_again_alone_and_says_so(agent, written, out, ran, file, again, how):
    damage(out / "parts" / agent.name / file, how)
    with pytest.warns(UserWarning, match=f"“{again}” is run again") as said:
        commands.examine([agent], out, SMALL)
    assert len([one for one in said if "run again" in str(one.message)]) == 1
    assert ran == ([] if again == "probes" else [again])
    for name in TABLES:
        assert (out / name).read_bytes() == next(v for k, v in written.items() if str(k) == name), name


def test_a_value_that_was_changed_is_not_believed(agent, written, out, ran):
    damage(out / "parts" / agent.name / "mirror.episodes.parquet", changed_value)
    with pytest.warns(UserWarning, match=r"mirror.episodes.parquet is damaged \(its checksum differs\)"):
        found = commands.examine([agent], out, SMALL)
    assert ran == [EXAM] and found == json.loads((out / "results.json").read_text())


def test_a_whole_exam_is_not_run_again(agent, out, ran):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        commands.examine([agent], out, SMALL)
    assert ran == []


@pytest.mark.parametrize("how", ["half", "empty"])
@pytest.mark.parametrize("file", ["exam.json", "provenance.json"])
def test_a_damaged_plan_or_provenance_stops_nothing(agent, written, out, ran, file, how):
    damage(out / file, how)
    with pytest.warns(UserWarning, match=f"{file} is damaged"):
        commands.examine([agent], out, SMALL)
    assert ran == []
    assert json.loads((out / file).read_text())


def test_parts_of_another_exam_are_not_used_where_the_plan_is_lost(agent, out, ran):
    """Another exam in the folder is refused; that is known by the plan, and without it by each part."""
    (out / "exam.json").write_bytes(b"")
    with pytest.warns(UserWarning, match="is of another exam"):
        commands.examine([agent], out, Settings(runs=3, chance_runs=2, conditions=(EXAM, "iid")))
    assert ran == [EXAM, "iid"]


def test_an_interrupted_write_is_run_again(tmp_path):
    (tmp_path / "absent.episodes.parquet").write_bytes(b"half")
    with pytest.warns(UserWarning, match="“absent” is run again"):
        assert parts.load(tmp_path, "absent", "exam") is None
    assert parts.load(tmp_path, "sham", "exam") is None
