"""Presets: the paper's tables, what each differs in, and that all of them are complete."""

import dataclasses
import json

import pytest

from mirrormark.agent.losses import LAMBDA
from mirrormark.presets import (
    LAPTOP,
    PAPER,
    PAPER_CODE,
    PAPER_QUICK,
    PRESETS,
    SMOKE,
    SWIFT,
    SWIFT_ARM,
    Config,
    preset,
)
from mirrormark.training import trainer
from mirrormark.training.optim import RULES
from mirrormark.training.run_folder import from_json, to_json


def leaves(config, path: str = "") -> dict[str, object]:
    """Dotted path -> value."""
    if not dataclasses.is_dataclass(config):
        return {path.lstrip("."): config}
    found = {}
    for field in dataclasses.fields(config):
        found |= leaves(getattr(config, field.name), f"{path}.{field.name}")
    return found


def difference(one: Config, other: Config) -> dict[str, object]:
    """Fields in which the second differs from the first, with its values."""
    a, b = leaves(one), leaves(other)
    return {name: b.get(name) for name in sorted(set(a) | set(b)) if a.get(name) != b.get(name)}


def test_paper_is_table_three():
    training, agent = PAPER.training, PAPER.agent
    s, b, i = training.schedule, training.batch, agent.imagination
    assert (s.episodes, s.episodes_per_iteration, s.steps_per_iteration) == (50_000, 10, 100)
    assert s.evaluate_every_episodes == 500
    assert (s.world_model_from_episode, s.self_prior_from_episode, s.policy_from_episode) == (100, 120, 140)
    assert (training.replay_episodes, training.marked_share, training.policy_share) == (1000, 0.5, 0.5)
    assert training.tokenizer_phase is None
    decays = [RULES[part].weight_decay for part in ("world_model", "self_prior", "policy", "value")]
    assert decays == [0.01, 0.01, None, None] and training.optim.world_model.eps == 1e-5
    assert (b.diet_marked_share, b.diet_babbling_only, b.diet_window) == (0.05, True, 64)  # D5, S3
    assert (b.sequences, b.sequence_frames, b.self_prior_frames) == (32, 64, 2048)  # D6
    assert (b.imagined, i.context, i.horizon) == (1024, 8, 16)  # D6
    assert (i.discount, LAMBDA, i.entropy) == (0.997, 0.95, 3e-4)
    assert PAPER.env.babbling.kind == "iid"


def test_paper_code_differs_where_paper_and_code_disagree_only():
    assert difference(PAPER, PAPER_CODE) == {
        "agent.as_public_code": True,
        "agent.tokenizer.auxiliary": "embedding",  # D4
        "env.biased_noise": True,  # D17
        "training.batch.diet_marked_share": 1 / 32,  # D5, S3
        "training.optim.self_prior.eps": 1e-8,  # O1
        "training.optim.world_model.eps": 1e-8,
    }


def test_paper_quick_is_paper_with_a_tenth_of_the_steps():
    assert difference(PAPER, PAPER_QUICK) == {"training.schedule.steps_per_iteration": 10}


SIZES = ("agent.world_model.", "agent.self_prior.", "agent.actor_critic.")
BATCHES = {f"training.batch.{name}" for name in ("sequences", "self_prior_frames", "imagined")}


def test_laptop_differs_from_swift_in_sizes_precision_schedule_and_its_tokenizer_only():
    differs = difference(SWIFT, LAPTOP)
    sizes = {n for n in differs if n.startswith((*SIZES, "training.evaluation."))} | BATCHES
    assert set(differs) >= BATCHES
    schedule = {name for name in differs if name.startswith("training.schedule.")}
    rest = set(differs) - sizes - schedule - {"training.precision", "training.replay_episodes"}
    assert (
        rest == {"training.tokenizer_phase.source"}
        and differs["training.tokenizer_phase.source"] == "shipped"
    )
    assert LAPTOP.agent.tokenizer == SWIFT.agent.tokenizer
    stages = [
        {name: value > 0 for name, value in leaves(p.training.schedule).items()} for p in (SWIFT, LAPTOP)
    ]
    assert stages[0] == stages[1]  # what opens later opens later in both
    for name in SIZES:
        part = name.split(".")[1]
        own, full = (leaves(getattr(p.agent, part)) for p in (LAPTOP, SWIFT))
        assert all(own[field] <= full[field] for field in own)


def test_swift_arm_differs_from_swift_in_body_sizes_and_episodes_only():
    names = {
        "env.body",
        "training.schedule.episodes",
        "agent.tokenizer.channels",
        "agent.tokenizer.posture_width",
    }
    rest = set(difference(SWIFT, SWIFT_ARM)) - names
    assert all(name.startswith(SIZES) for name in rest) and SWIFT_ARM.env.body == "arm"


def test_smoke_has_all_that_swift_has():
    """Every test of it is one of swift's mechanisms."""
    small = {name.split(".")[-1] for name in difference(SWIFT, SMOKE)}
    assert SMOKE.agent.on_policy is not None and SMOKE.agent.expected_g.control_steps > 0
    assert SMOKE.training.tokenizer_phase is not None and SMOKE.training.handover_share > 0
    assert not small & {
        "policy_share_of_loss",
        "drive",
        "encoder_sees",
        "rate",
        "posture_precision",
        "discount",
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_json_and_every_check(name):
    made = PRESETS[name]
    trainer.check(made.agent, made.training)
    assert from_json(Config, json.loads(json.dumps(to_json(made)))) == made


def test_paper_codes_frames_have_the_biased_noise():
    """D17: the same moment, darker by half a level on average."""
    paper, code = (PRESETS[name].env.make_envs(2).reset(seed=3)[0] for name in ("paper", "paper-code"))
    change = code["vision"].astype(int) - paper["vision"].astype(int)
    assert change.min() >= -4 and change.max() <= 3 and change.mean() == pytest.approx(-0.5, abs=0.05)
    assert (code["proprioception"] == paper["proprioception"]).all()


def test_symbolic_is_an_ablation_and_says_so_and_nobody_else_is():
    assert [name for name, p in PRESETS.items() if p.env.ablation] == ["symbolic"]


@pytest.mark.parametrize("name", ["swift", "swift-arm", "symbolic", "laptop"])
def test_a_touch_of_ten_control_steps_fits_into_the_context(name):
    assert PRESETS[name].agent.imagination.context >= 12


def test_an_unknown_preset_is_one_sentence():
    with pytest.raises(ValueError, match="--preset 'huge' is unknown: choose smoke, symbolic"):
        preset("huge")
