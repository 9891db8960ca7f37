"""What a run says as it goes, beyond its rows."""

import io

import pytest
from rich.console import Console
from tiny_trainers import newborn, symbolic

from mirrormark.presets import PRESETS
from mirrormark.training.recorder import Recorder, out_of_reach
from mirrormark.training.run_folder import RunFolder


@pytest.mark.parametrize(
    ("agent", "metrics", "fields"),
    [
        (
            "swift",
            {"value": 4_900.0, "cost_on_policy": 20.0},
            {"value_reach"},
        ),  # as returns at .997
        ("swift", {"value": -4_600.0, "cost_on_policy": 140.0}, {"value_reach", "expected_g.reach"}),
        ("swift", {"value": 4_400.0, "cost_on_policy": 130.0}, set()),
        ("swift", {"imagined_cost": 140.0}, {"expected_g.reach"}),  # nothing is learned from on-policy data
        ("swift", {}, set()),  # before the policy learns
        (
            "paper",
            {"value": 1_500.0, "cost_on_policy": 160.0},
            set(),
        ),  # symlog bins end far out; no expected G
    ],
)
def test_bins_that_end_too_soon_are_told(agent, metrics, fields):
    assert set(out_of_reach(PRESETS[agent].agent, metrics)) == fields


def test_each_is_told_once_with_its_name_and_the_fix(tmp_path):
    trainer = newborn(symbolic())
    iteration = trainer.schedule.iteration(0)._replace(evaluation=False, checkpoint=False)
    said = io.StringIO()
    with Recorder(
        RunFolder.create(tmp_path / "run", {}), trainer, "tiny", Console(file=said, width=200)
    ) as records:
        for _ in range(2):
            records(iteration, trainer, {"value": 4_900.0})
    assert said.getvalue().count("agent.value_reach ends at 5000 nats") == 1 and "raise it" in said.getvalue()
