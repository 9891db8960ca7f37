"""Presets: the paper's tables, parity flags, and that all of them are complete."""

import pytest

from mirrormark.life.run import from_json, to_json
from mirrormark.presets import PRESETS, Preset, preset


def test_paper_is_table_three():
    life, mind = PRESETS["paper"].life, PRESETS["paper"].mind
    s, m, learner = life.schedule, life.memory, life.learner
    assert (s.episodes, s.episodes_per_lap, s.steps_per_lap, s.exam_every_episodes) == (50_000, 10, 100, 500)
    assert (s.world_from_episode, s.self_prior_from_episode, s.policy_from_episode) == (100, 120, 140)
    assert (m.capacity_episodes, life.marked_share, life.tokens, s.codec_laps) == (1000, 0.5, False, 0)
    kinds = [getattr(learner, part).optimiser for part in ("world", "self_prior", "policy", "value")]
    assert kinds == ["adamw", "adamw", "adam", "adam"]
    assert {getattr(learner, part).eps for part in ("world", "self_prior", "policy", "value")} == {1e-5}
    assert (learner.diet_marked_share, learner.diet_random_only) == (0.05, True)  # D5
    assert (learner.world_sequences, learner.world_frames, learner.self_prior_frames) == (32, 64, 2048)  # D6
    i = mind.imagination
    assert (learner.dreams, i.context, i.horizon) == (1024, 8, 16)  # D6
    assert (i.discount, i.lambda_, i.entropy) == (0.997, 0.95, 3e-4)
    assert PRESETS["paper"].world.movement.kind == "iid"


def test_paper_code_differs_in_the_parity_flags_only():
    def leaves(value, name=""):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from leaves(inner, f"{name}.{key}")
        else:
            yield name.lstrip("."), value

    ours, theirs = (dict(leaves(to_json(PRESETS[name]))) for name in ("paper", "paper-code"))
    assert {name for name in ours if ours[name] != theirs[name]} == {
        "mind.losses.decoder",  # D4
        "life.learner.diet_marked_share",  # D5
        "mind.imagination.dropout",  # D9
        "mind.policy.acts_on",  # D10
        "world.biased_noise",  # D17
    }


def test_paper_codes_worlds_are_seen_with_the_biased_noise():
    """D17: the same moment, darker by half a level on average."""
    paper, code = (PRESETS[name].world.worlds(2).reset(seed=3)[0] for name in ("paper", "paper-code"))
    change = code["vision"].astype(int) - paper["vision"].astype(int)
    assert -4 <= change.min() and change.max() <= 3 and change.mean() == pytest.approx(-0.5, abs=0.05)
    assert (code["proprioception"] == paper["proprioception"]).all()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_json(name):
    assert from_json(Preset, to_json(PRESETS[name])) == PRESETS[name]


def test_ideal_is_told_and_says_so_and_nobody_else_is():
    assert [name for name, p in PRESETS.items() if p.world.ablation] == ["ideal"]
    ideal = PRESETS["ideal"]
    assert (ideal.world.tone, ideal.world.tone_scale, ideal.mind.codec.kind) == ("flexor", 0.5, "symbolic")


def test_a_touch_fits_into_the_context_where_time_is_ours():
    for name in ("swift", "ideal", "laptop"):
        assert PRESETS[name].mind.imagination.context >= 12


def test_an_unknown_preset_is_one_sentence():
    with pytest.raises(ValueError, match="choose smoke, ideal"):
        preset("huge")
