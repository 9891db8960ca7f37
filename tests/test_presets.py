"""Presets: the paper's tables, parity flags, and that all of them are complete."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest
import torch

from mirrormark.agent.objective import LAMBDA
from mirrormark.presets import PRESETS, Config, preset
from mirrormark.training import trainer
from mirrormark.training.optim import EPS, RULES, Optimizer, OptimizerConfig
from mirrormark.training.run_folder import from_json, to_json

DOC = (Path(__file__).parents[2] / "docs" / "paper.md").read_text()
PARTS = ("world_model", "self_prior", "policy", "value", "expected_g")
NO_TOKENIZER_PHASE = re.compile(r"training\.(schedule\.tokenizer_(?!iterations)|learner\.tokenizer|pool_episodes)")
SENSES_ONLY = re.compile(
    r"agent\.tokenizer\.(levels|tokens_per_cell|scene_tokens|bins|encoder_sees|vision_token_dropout|widest|posture_width)"
)


def leaves(config, path: str = "") -> dict[str, object]:
    """Dotted path -> value."""
    if not dataclasses.is_dataclass(config):
        return {path.lstrip("."): config}
    found = {}
    for field in dataclasses.fields(config):
        found |= leaves(getattr(config, field.name), f"{path}.{field.name}")
    return found


def cells(heading: str) -> list[list[str]]:
    """The rows, cell by cell, whose first cell is a field, of the section with these words in its heading."""
    (body,) = (part for part in DOC.split("\n## ") if heading in part.split("\n")[0])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.split("\n")]
    return [row for row in rows if re.fullmatch(r"`(world|agent|life)\.[a-z_.*]+`", row[0])]


def value(cell: str) -> object:
    return ast.literal_eval(cell.strip("`"))


def test_world_and_life_of_paper_are_the_documents_table():
    """Schedule, memory, learner; `*` stands for the parts that learn."""
    documented = {}
    for row in cells("preset `paper`, field"):
        for name in {row[0].strip("`").replace("*", part) for part in PARTS}:
            assert name not in documented, name
            documented[name] = value(row[1])
    real = leaves(PRESETS["paper"])
    assert {name: real.get(name, "no such field") for name in documented} == documented
    on_policy = {name for name in real if name.startswith("training.") and not NO_TOKENIZER_PHASE.match(name)}
    assert on_policy <= set(documented)
    assert {"training.learner.value.learning_rate", "env.babbling.kind"} <= set(documented)


def test_paper_code_is_the_documents_table():
    ours, theirs = leaves(PRESETS["paper"]), leaves(PRESETS["paper-code"])
    differs = {name: theirs[name] for name in ours if ours[name] != theirs[name]}
    assert {row[0].strip("`"): value(row[1]) for row in cells("Preset `paper-code`")} == differs


def test_swift_leaves_the_paper_where_the_document_says_and_nowhere_else():
    paper, swift = leaves(PRESETS["paper"]), leaves(PRESETS["swift"])
    rows = {row[0].strip("`"): row[1:] for row in cells("Where `swift`")}
    assert set(rows) == {name for name in paper if paper[name] != swift[name]}
    for name, (theirs, ours, _, measured) in rows.items():
        assert value(ours) == swift[name], name
        idle = NO_TOKENIZER_PHASE.match(name) or SENSES_ONLY.match(name)
        assert theirs == "–" if idle else value(theirs) == paper[name], name
        assert measured, name


@pytest.mark.parametrize(
    ("part", "kind"), [("world_model", "AdamW"), ("policy", "Adam"), ("tokenizer", "AdamW")]
)
def test_optimisers_are_made_as_the_table_says(part, kind):
    rule = RULES[part]
    optimizer = Optimizer([torch.nn.Parameter(torch.zeros(2))], OptimizerConfig(), rule)
    clip, (group,) = optimizer.zclip, optimizer.optimizer.param_groups
    assert type(optimizer.optimizer).__name__ == kind and group["weight_decay"] == (rule.weight_decay or 0)
    assert (group["betas"], group["eps"], clip.cap) == (rule.betas, 1e-5, rule.norm_cap)
    assert (clip.alpha, clip.z, clip.warmup_steps) == (0.97, 2.5, 25)


def test_paper_is_table_three():
    training, agent = PRESETS["paper"].training, PRESETS["paper"].agent
    s, m, learner = training.schedule, training.replay, training.learner
    assert (s.episodes, s.episodes_per_iteration, s.steps_per_iteration, s.evaluate_every_episodes) == (
        50_000,
        10,
        100,
        500,
    )
    assert (s.world_model_from_episode, s.self_prior_from_episode, s.policy_from_episode) == (100, 120, 140)
    assert (m.capacity_episodes, training.marked_share, training.frozen_tokenizer, s.tokenizer_iterations) == (
        1000,
        0.5,
        False,
        0,
    )
    decays = [RULES[part].weight_decay for part in ("world_model", "self_prior", "policy", "value")]
    assert decays == [0.01, 0.01, None, None] and EPS == 1e-5
    assert (learner.diet_marked_share, learner.diet_random_only) == (0.05, True)  # D5
    assert (learner.sequences, learner.sequence_frames, learner.self_prior_frames) == (32, 64, 2048)  # D6
    i = agent.imagination
    assert (learner.dreams, i.context, i.horizon) == (1024, 8, 16)  # D6
    assert (i.discount, LAMBDA, i.entropy) == (0.997, 0.95, 3e-4)
    assert PRESETS["paper"].env.babbling.kind == "iid"


def test_paper_code_differs_in_the_parity_flags_only():
    ours, theirs = (leaves(PRESETS[name]) for name in ("paper", "paper-code"))
    assert {name for name in ours if ours[name] != theirs[name]} == {
        "agent.losses.decoder",  # D4
        "training.learner.diet_marked_share",  # D5
        "agent.imagination.dropout",  # D9
        "agent.policy.acts_on",  # D10
        "env.biased_noise",  # D17
    }


def test_paper_codes_envs_are_seen_with_the_biased_noise():
    """D17: the same moment, darker by half a level on average."""
    paper, encoding = (PRESETS[name].env.make_envs(2).reset(seed=3)[0] for name in ("paper", "paper-code"))
    change = encoding["vision"].astype(int) - paper["vision"].astype(int)
    assert change.min() >= -4 and change.max() <= 3 and change.mean() == pytest.approx(-0.5, abs=0.05)
    assert (encoding["proprioception"] == paper["proprioception"]).all()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_json(name):
    assert from_json(Config, to_json(PRESETS[name])) == PRESETS[name]


def test_ideal_is_told_and_says_so_and_nobody_else_is():
    assert [name for name, p in PRESETS.items() if p.env.ablation] == ["symbolic"]
    ideal = PRESETS["symbolic"]
    assert (ideal.env.tone, ideal.env.tone_scale, ideal.agent.tokenizer.kind) == ("flexor", 0.5, "symbolic")


def test_a_touch_fits_into_the_context_where_time_is_ours():
    for name in ("swift", "symbolic", "laptop"):
        assert PRESETS[name].agent.imagination.context >= 12


def test_an_unknown_preset_is_one_sentence():
    with pytest.raises(ValueError, match="choose smoke, symbolic"):
        preset("huge")


def test_a_tokenizer_that_cannot_learn_has_no_phase_of_its_own():
    ideal = preset("symbolic")
    schedule = dataclasses.replace(ideal.training.schedule, tokenizer_iterations=1)
    trainer.check(ideal.agent, ideal.training)
    with pytest.raises(ValueError, match=r"schedule\.tokenizer_iterations is for a tokenizer that learns"):
        trainer.check(ideal.agent, dataclasses.replace(ideal.training, schedule=schedule))
