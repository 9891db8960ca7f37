"""The tokenizer's phase: its end, and that a resumed run fills its buffer again, to the last frame."""

from dataclasses import replace

import pytest
import torch
from tiny_trainers import newborn, pixels

from mirrormark.agent.acting import encode
from mirrormark.config import TokenizerPhaseConfig
from mirrormark.presets import SMOKE
from mirrormark.training.replay_buffer import Episodes
from mirrormark.training.trainer import Trainer


def without(episodes: Episodes, broken: int) -> Episodes:
    """Less those of the first environments."""
    observation = {name: value[broken:] for name, value in episodes.observation.items()}
    return Episodes(observation, *(value[broken:] for value in episodes[1:]))


def breaking(trainer: Trainer, broken: dict[int, int], collected: list[int]) -> Trainer:
    """So many environments break in those iterations, whenever they are run."""
    real = trainer.collect

    def collect(iteration):
        collected.append(iteration.index)
        return without(real(iteration), broken.get(iteration.index, 0))

    trainer.collect = collect  # type: ignore[method-assign]
    return trainer


@pytest.mark.parametrize("marked_share", [0.5, 0.0], ids=["half", "none"])
@pytest.mark.parametrize("first_episodes", [4, 20], ids=["a few", "more than room"])
@pytest.mark.parametrize("broken", [{}, {1: 1, 3: 1}, {0: 1, 4: 1}], ids=["sound", "middle", "ends"])
def test_a_resumed_buffer_is_the_uninterrupted_one(broken, first_episodes, marked_share):
    iterations = 5
    phase = TokenizerPhaseConfig(iterations + 1, first_episodes, 4, 0, buffer_episodes=8)
    config = replace(SMOKE.training, tokenizer_phase=phase, marked_share=marked_share)
    preset = replace(SMOKE, training=config)
    straight = breaking(newborn(preset), broken, [])
    for index in range(iterations):
        straight.run_iteration(straight.schedule.iteration(index))
    collected: list[int] = []
    resumed = breaking(newborn(preset), broken, collected)
    resumed.load_state(straight.state())
    assert straight.phase is not None and resumed.phase is not None
    assert straight.phase.written == resumed.phase.written
    one, other = straight.phase.buffer, resumed.phase.buffer
    assert one.written == other.written and one.counts == other.counts
    assert torch.equal(one.action, other.action) and torch.equal(one._newest, other._newest)
    assert all(torch.equal(kept, other.observation[name]) for name, kept in one.observation.items())
    assert 0 not in collected and collected == sorted(collected)  # what was overwritten is not gathered again


def test_at_its_end_the_tokenizer_is_frozen_and_its_frames_are_the_first_tokens_of_replay():
    trainer = newborn(pixels())
    (first,) = (i for i in trainer.schedule.iterations() if i.phase == "tokenizer")
    assert trainer.phase is not None and trainer.buffer_of(first) is trainer.phase.buffer
    frames = trainer.phase.buffer
    trainer.run_iteration(first)
    assert trainer.phase is None and trainer.buffer_of(first) is trainer.buffer
    assert not any(p.requires_grad for p in trainer.agent.tokenizer.parameters())
    assert trainer.buffer.counts == {**frames.counts} and sum(frames.counts.values()) == 4
    for group, count in enumerate(list(frames.counts.values())[:2]):
        for place in range(count):
            seen = group * frames.per_group + place
            stored = trainer.buffer.observation["tokens"][group * trainer.buffer.per_group + place].long()
            episode = {name: value[seen] for name, value in frames.observation.items()}
            assert torch.equal(encode(trainer.agent, episode), stored)


def test_in_its_phase_the_tokenizer_sees_babbling_frames_half_of_them_marked(monkeypatch):
    trainer = newborn(pixels())
    iteration, asked = trainer.schedule.iteration(0), []
    assert trainer.phase is not None
    trainer.phase.extend(trainer.collect(iteration))
    draw = trainer.phase.buffer.frames
    monkeypatch.setattr(trainer.phase.buffer, "frames", lambda *a, **k: asked.append((a, k)) or draw(*a, **k))
    trainer.learner.learn(trainer.phase.buffer, iteration._replace(steps=1))
    assert asked == [((16, 0.5), {"babbling_only": True})]
