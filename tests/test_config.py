"""A number that makes no sense is refused at once, in a sentence that names its field."""

import dataclasses
import re

import pytest

from mirrormark import config as c
from mirrormark.presets import PAPER, SMOKE, SWIFT
from mirrormark.training.trainer import check

REFUSED = [
    (c.CategoricalTokenizerConfig, {"classes": 1}, "tokenizer.classes is 1"),
    (c.CategoricalTokenizerConfig, {"channels": 4}, "tokenizer.embedding must be 32 × ch"),
    (c.SymbolicTokenizerConfig, {"bins": 1}, "tokenizer.bins is 1"),
    (c.GridTokenizerConfig, {"bins": 1}, "tokenizer.bins is 1"),
    (c.GridTokenizerConfig, {"vision_token_dropout": 1.5}, "tokenizer.vision_token_dropout is a share"),
    (c.GridTokenizerConfig, {"rate_ramp": -0.5}, "tokenizer.rate_ramp is a share"),
    (c.GridTokenizerConfig, {"rate": -1.0}, "tokenizer.rate is -1.0"),
    (c.WorldModelConfig, {"dropout": 1.0}, "world_model.dropout is 1.0"),
    (c.WorldModelConfig, {"width": 30}, "world_model.width must be a multiple of world_model.heads"),
    (c.SelfPriorConfig, {"width": 30}, "self_prior.width must be a multiple of self_prior.heads"),
    (c.ActorCriticConfig, {"bins": 1}, "actor_critic.bins is 1"),
    (c.ImaginationConfig, {"horizon": 0}, "imagination.horizon and imagination.context must be at least 1"),
    (c.ImaginationConfig, {"discount": 1.5}, "imagination.discount must lie in (0, 1]"),
    (c.PaperAgentConfig, {"imagination": c.ImaginationConfig(horizon=60)}, "context + horizon = 68"),
    (c.PaperAgentConfig, {"as_public_code": True, "imagination": c.ImaginationConfig(context=1)}, "least 2"),
    (c.ExpectedGConfig, {"control_steps": -1}, "expected_g.control_steps must not be negative"),
    (c.ExpectedGConfig, {"reach": 0.0}, "expected_g.reach above 0"),
    (c.OnPolicyConfig, {"policy_share": 1.5}, "on_policy.policy_share is a share"),
    (c.OnPolicyConfig, {"windows": 0}, "on_policy.windows is 0"),
    (c.ActionNoiseConfig, {"rho": 1.0}, "action_noise.rho is 1.0"),
    (c.ActionNoiseConfig, {"final_rho": -0.1}, "action_noise.final_rho is -0.1"),
    (c.ActionNoiseConfig, {"decay_power": 0.0}, "action_noise.decay_power is 0.0"),
    (c.SwiftAgentConfig, {"acting_context": 3}, "acting_context is 3: give 0, or a number from"),
    (c.SwiftAgentConfig, {"acting_context": 81}, "acting_context is 81"),
    (c.SwiftAgentConfig, {"imagination": c.ImaginationConfig(context=1)}, "least 2 with on_policy"),
    (c.SwiftAgentConfig, {"posture_precision": -1.0}, "posture_precision must not be negative"),
    (c.SwiftAgentConfig, {"value_reach": 0.0}, "value_reach is 0.0"),
    (c.OptimizerConfig, {"learning_rate": 0.0}, "learning_rate is 0.0"),
    (c.BatchConfig, {"sequences": 0}, "batch.sequences is 0"),
    (c.BatchConfig, {"imagined": 0}, "batch.imagined is 0"),
    (c.BatchConfig, {"sequence_frames": 1}, "batch.sequence_frames must be at least 2"),
    (c.BatchConfig, {"diet_marked_share": 2.0}, "batch.diet_marked_share is a share"),
    (c.ScheduleConfig, {"episodes": 0}, "schedule.episodes is 0"),
    (c.ScheduleConfig, {"evaluate_every_episodes": 0}, "schedule.evaluate_every_episodes is 0"),
    (c.ScheduleConfig, {"policy_from_episode": -1}, "schedule.policy_from_episode is -1"),
    (c.TokenizerPhaseConfig, {"first_episodes": 0}, "tokenizer_phase.first_episodes is 0"),
    (c.TokenizerPhaseConfig, {"buffer_episodes": 1}, "tokenizer_phase.buffer_episodes is 1"),
    (c.EvaluationConfig, {"policy_episodes": 3}, "evaluation needs at least 4"),
    (c.TrainingConfig, {"replay_episodes": 3}, "replay_episodes must be at least 4"),
    (c.TrainingConfig, {"handover_share": 2.0}, "training.handover_share is a share"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"), REFUSED, ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_number_that_makes_no_sense_is_named(kind, fields, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        kind(**fields)


def changed(preset, **paths):
    """The preset with a value at each path of names joined by `__`."""
    for path, value in paths.items():
        preset = _with(preset, path.split("__"), value)
    return preset


def _with(config, names, value):
    inner = _with(getattr(config, names[0]), names[1:], value) if len(names) > 1 else value
    return dataclasses.replace(config, **{names[0]: inner})


TOGETHER = [
    (PAPER, {"training__batch__sequence_frames": 66}, "batch.sequence_frames is 66: .* allow 65"),
    (
        SWIFT,
        {"agent__world_model__max_length": 200, "training__batch__sequence_frames": 102},
        "allow 101",
    ),
    (
        PAPER,
        {"agent__world_model__max_length": 200, "agent__imagination__horizon": 94},
        "an episode has 101",
    ),
    (PAPER, {"training__batch__diet_window": 102}, "batch.diet_window is 102"),
    (PAPER, {"training__tokenizer_phase": c.TokenizerPhaseConfig()}, "leave it out for the paper's agent"),
    (SWIFT, {"training__tokenizer_phase": None}, "belongs to agents with a frozen tokenizer"),
    (SWIFT, {"training__batch__sequence_frames": 79}, "acting_context is 79: .* never learns more than 78"),
    (SMOKE, {"agent__expected_g__control_steps": 14}, "expected G over 14 control steps needs 18 at least"),
    (SWIFT, {"agent__expected_g__control_steps": 0}, "training.handover_share serves expected G only"),
]


@pytest.mark.parametrize(
    ("preset", "paths", "sentence"), TOGETHER, ids=[sentence for *_, sentence in TOGETHER]
)
def test_what_only_fails_together_is_refused_before_any_work(preset, paths, sentence):
    check(preset.agent, preset.training)
    wrong = changed(preset, **paths)
    with pytest.raises(ValueError, match=sentence):
        check(wrong.agent, wrong.training)


def test_noise_falls_from_its_first_to_its_final_correlation():
    noise = c.ActionNoiseConfig(0.9, 0.1, decay_power=2.0)
    assert [noise.at(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([0.9, 0.7, 0.1])
    assert c.ActionNoiseConfig(0.9, None).at(1.0) == 0.9
