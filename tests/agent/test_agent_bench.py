import pytest
import torch
from tiny_agents import PIXELS, TOKENIZERS, observe

from mirrormark.agent.bench import (
    CONTENDERS,
    BenchConfig,
    Contender,
    classes_in_use,
    compare,
    heading,
    learning_rate,
    line,
    mark_recovery,
)
from mirrormark.agent.configs import AGENTS


def test_mark_recovery_counts_only_the_pixels_that_the_mark_changes():
    unmarked = torch.zeros(2, 8, 8, 3)
    marked = unmarked.clone()
    marked[:, 2:4, 2:4, 0] = 1.0
    assert mark_recovery(marked, marked, unmarked) == 1
    assert mark_recovery(unmarked, marked, unmarked) == 0
    elsewhere = marked.clone()
    elsewhere[:, 6:] = 5.0
    assert mark_recovery(elsewhere, marked, unmarked) == 1
    half = (marked + unmarked) / 2
    assert mark_recovery(half, marked, unmarked) == pytest.approx(0.75)


def test_classes_in_use():
    assert classes_in_use(torch.tensor([[0, 1], [0, 2], [0, 3]]), 5) == 2


def test_learning_rate_rises_then_falls_to_its_end():
    config = BenchConfig(steps=100)
    rates = [learning_rate(step, config) for step in range(100)]
    assert max(rates) == rates[2] == config.learning_rate and rates[0] < rates[1]
    assert rates[99] == pytest.approx(config.final_rate, rel=0.05)


def test_every_contender_gets_better_with_training():
    contenders = {name: Contender(TOKENIZERS[name][0], 0.1) for name in ("grid", "grid, scene")}
    frames = observe(PIXELS, 64)
    frames["vision"] = (frames["vision"] // 16 + 200).to(
        torch.uint8
    )  # bright frames: the mean can be learned
    marked = {**frames, "vision": frames["vision"].clone()}
    marked["vision"][:, 3:6, 3:6] = 0
    groups = {}
    for steps in (1, 40):
        config = BenchConfig(steps=steps, batch=16, learning_rate=1e-2)
        groups[steps] = dict(compare(PIXELS, frames, marked, frames, config, contenders))
    for name in contenders:
        assert groups[40][name].frame_error < 0.5 * groups[1][name].frame_error
    text = line("grid", groups[40]["grid"])
    assert "mark_recovery" in heading() and text.startswith("| grid |")
    assert text.count("|") == heading().split("\n")[0].count("|") == heading().split("\n")[1].count("|")


def test_swifts_own_tokenizer_contends_with_its_own_quiet_loss():
    assert CONTENDERS["swift"] == (AGENTS["swift"].tokenizer, AGENTS["swift"].losses.rate)
    assert {contender.tokenizer.kind for contender in CONTENDERS.values()} == {"categorical", "grid"}


def test_a_tokenizer_is_given_before_the_next_one_learns(monkeypatch):
    learned = []
    monkeypatch.setattr("mirrormark.agent.bench.train", lambda agent, *_: learned.append(agent) or 0.0)
    frames = observe(PIXELS, 4)
    contenders = {name: Contender(TOKENIZERS["grid"][0]) for name in "abc"}
    rows = compare(PIXELS, frames, frames, frames, BenchConfig(steps=1), contenders)
    assert [(name, len(learned)) for name, _ in rows] == [("a", 1), ("b", 2), ("c", 3)]
