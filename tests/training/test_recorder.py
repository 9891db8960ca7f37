"""What a run says as it goes, beyond its rows."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tiny_trainers import born, symbolic

from mirrormark.presets import AGENTS
from mirrormark.training.recorder import Recorder, out_of_reach
from mirrormark.training.run_folder import RunFolder


@pytest.mark.parametrize(
    ("agent", "metrics", "fields"),
    [
        (
            "swift",
            {"value": 1_500.0, "cost_on_policy": 20.0},
            {"value.reach"},
        ),  # as uncentred returns at .997
        ("swift", {"value": -1_400.0, "cost_on_policy": 140.0}, {"value.reach", "expected_g.reach"}),
        ("swift", {"value": 1_300.0, "cost_on_policy": 130.0}, set()),
        ("swift", {"cost_dreamed": 140.0}, {"expected_g.reach"}),  # nothing is learned from on-policy data
        ("swift", {}, set()),  # before the policy learns
        (
            "paper",
            {"value": 1_500.0, "cost_on_policy": 160.0},
            set(),
        ),  # symlog bins end far out; no expected G
    ],
)
def test_bins_that_end_too_soon_are_told(agent, metrics, fields):
    assert set(out_of_reach(AGENTS[agent], metrics)) == fields


def test_each_is_told_once_with_its_name_and_the_fix(tmp_path):
    preset = symbolic()
    trainer = born(replace(preset, agent=replace(preset.agent, value=AGENTS["swift"].value)))
    iteration = trainer.schedule.iteration(0)._replace(evaluate=False, checkpoint=False)
    said = io.StringIO()
    with Recorder(
        RunFolder.create(tmp_path / "run", {}), trainer, "tiny", Console(file=said, width=200)
    ) as records:
        for _ in range(2):
            records(iteration, trainer, {"value": 1_500.0})
    assert said.getvalue().count("agent.value.reach ends at 1500 nats") == 1 and "raise it" in said.getvalue()
