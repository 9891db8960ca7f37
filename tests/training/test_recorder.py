"""What a run says as it goes, beyond its rows."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tiny_trainers import born, symbolic

from mirrormark.presets import MINDS
from mirrormark.training.recorder import Records, out_of_reach
from mirrormark.training.run_folder import Run


@pytest.mark.parametrize(
    ("mind", "metrics", "fields"),
    [
        ("swift", {"value": 1_500.0, "cost_lived": 20.0}, {"value.reach"}),  # as uncentred returns at .997
        ("swift", {"value": -1_400.0, "cost_lived": 140.0}, {"value.reach", "outlook.reach"}),
        ("swift", {"value": 1_300.0, "cost_lived": 130.0}, set()),
        ("swift", {"cost_dreamed": 140.0}, {"outlook.reach"}),  # nothing is learned from life
        ("swift", {}, set()),  # before the policy learns
        ("paper", {"value": 1_500.0, "cost_lived": 160.0}, set()),  # symlog bins end far out; no outlook
    ],
)
def test_bins_that_end_too_soon_are_told(mind, metrics, fields):
    assert set(out_of_reach(MINDS[mind], metrics)) == fields


def test_each_is_told_once_with_its_name_and_the_fix(tmp_path):
    preset = symbolic()
    life = born(replace(preset, mind=replace(preset.mind, value=MINDS["swift"].value)))
    lap = life.schedule.lap(0)._replace(exam=False, checkpoint=False)
    said = io.StringIO()
    with Records(Run.create(tmp_path / "run", {}), life, "tiny", Console(file=said, width=200)) as records:
        for _ in range(2):
            records(lap, life, {"value": 1_500.0})
    assert said.getvalue().count("mind.value.reach ends at 1500 nats") == 1 and "raise it" in said.getvalue()
