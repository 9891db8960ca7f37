"""Replay: groups, FIFO, what is drawn, and that labels only choose."""

import pytest
import torch

from mirrormark.life.memory import Episodes, Memory, MemoryConfig

LENGTH, ACTIONS = 12, 3


def episodes(n: int, policy: bool, marked: bool, first: int = 0) -> Episodes:
    """Episode i carries the number first + i in every frame, so that draws can be traced."""
    number = torch.arange(first, first + n)
    latent = (number[:, None, None] * 1000 + torch.arange(LENGTH)[None, :, None]).expand(n, LENGTH, 2)
    action = number[:, None, None].expand(n, LENGTH, ACTIONS).float()
    mark = torch.full((n, LENGTH), marked)
    let_go = number % 7  # traced like the rest
    flags = torch.full((n,), policy), torch.full((n,), marked)
    return Episodes({"latent": latent}, action, mark, *flags, let_go)


def filled(
    config: MemoryConfig | None = None, groups=((False, False), (False, True), (True, False), (True, True))
):
    memory = Memory(
        {"latent": ((2,), torch.int32)}, ACTIONS, LENGTH, config or MemoryConfig(capacity_episodes=40)
    )
    for i, (policy, marked) in enumerate(groups):
        memory.extend(episodes(6, policy, marked, first=100 * i))
    return memory


def numbers(latent: torch.Tensor) -> torch.Tensor:
    return latent[..., 0].long() // 1000


def test_each_group_is_first_in_first_out():
    memory = Memory({"latent": ((2,), torch.int32)}, ACTIONS, LENGTH, MemoryConfig(capacity_episodes=16))
    for first in range(0, 12, 3):
        memory.extend(episodes(3, policy=False, marked=True, first=first))
    assert memory.counts == {
        "random_unmarked": 0,
        "random_marked": 4,
        "policy_unmarked": 0,
        "policy_marked": 0,
    }
    stored = numbers(memory.observation["latent"][4:8, 0]).tolist()
    assert sorted(stored) == [8, 9, 10, 11]


def test_more_new_episodes_than_room_keeps_the_newest():
    memory = Memory({"latent": ((2,), torch.int32)}, ACTIONS, LENGTH, MemoryConfig(capacity_episodes=16))
    memory.extend(episodes(9, policy=True, marked=False))
    assert sorted(numbers(memory.observation["latent"][8:12, 0]).tolist()) == [5, 6, 7, 8]


@pytest.mark.parametrize("filled_groups", [1, 2, 3, 4])
def test_groups_are_drawn_evenly(filled_groups):
    groups = [(False, False), (False, True), (True, False), (True, True)][:filled_groups]
    memory = filled(groups=groups)
    group = numbers(memory.sequences(48, 5).observation["latent"][:, 0]) // 100
    assert torch.bincount(group, minlength=filled_groups).tolist() == [48 // filled_groups] * filled_groups


def test_windows_are_contiguous_and_carry_their_own_actions():
    draw = filled().sequences(64, 5)
    frame = draw.observation["latent"][..., 0].long() % 1000
    assert (frame.diff(dim=1) == 1).all()
    assert frame.min() == 0 and frame.max() == LENGTH - 1  # both ends of the episode are reached
    assert (draw.action[..., 0].long() == numbers(draw.observation["latent"])).all()


def test_every_stored_episode_is_drawn_and_no_empty_room():
    seen = numbers(filled().sequences(2000, 2).observation["latent"][:, 0]).unique()
    assert seen.tolist() == [100 * g + i for g in range(4) for i in range(6)]


def test_any_sequences_draws_every_stored_episode_alike_whatever_its_group():
    memory = Memory({"latent": ((2,), torch.int32)}, ACTIONS, LENGTH, MemoryConfig(capacity_episodes=40))
    memory.extend(episodes(9, policy=False, marked=False))
    memory.extend(episodes(1, policy=True, marked=True, first=9))
    torch.manual_seed(0)
    draw = memory.any_sequences(20_000, 5)
    shares = torch.bincount(numbers(draw.observation["latent"][:, 0])) / 20_000
    assert len(shares) == 10 and (shares - 0.1).abs().max() < 0.01
    frame = draw.observation["latent"][..., 0].long() % 1000
    assert (frame.diff(dim=1) == 1).all() and frame.min() == 0 and frame.max() == LENGTH - 1
    assert (draw.action[..., 0].long() == numbers(draw.observation["latent"])).all()
    grouped = numbers(memory.sequences(20_000, 5).observation["latent"][:, 0])
    assert (grouped == 9).float().mean() > 0.4  # what a draw by groups would do


def test_the_newest_sequences_are_the_policys_own_marked_and_unmarked_in_turn():
    memory = filled()
    for marked in (False, True):
        memory.extend(episodes(2, True, marked, first=210 + 100 * marked))
    memory.extend(episodes(3, False, True, first=400))  # everyday life is not asked
    twin = Memory({"latent": ((2,), torch.int32)}, ACTIONS, LENGTH, MemoryConfig(capacity_episodes=40))
    twin.load_state(memory.state())
    for one in (memory, twin):
        drawn = numbers(one.newest_sequences(400, 3).observation["latent"][:, 0])
        assert sorted(drawn.unique().tolist()) == [210, 211, 310, 311]  # the last lap's two of each
        assert torch.bincount(drawn // 100)[2:].tolist() == [200, 200]


def test_before_there_is_a_policy_everyday_life_stands_in():
    draw = filled(groups=[(False, True)]).newest_sequences(200, 3)
    assert set(numbers(draw.observation["latent"][:, 0]).tolist()) == set(range(6))


def test_actions_kept_in_half_precision_come_out_as_float32():
    fields = {"latent": ((2,), torch.uint8)}
    memory = Memory(fields, ACTIONS, LENGTH, MemoryConfig(capacity_episodes=8), action_dtype=torch.float16)
    made = episodes(2, policy=False, marked=False)
    action = torch.rand(made.action.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    memory.extend(made._replace(action=action, observation={"latent": made.observation["latent"] * 0}))
    drawn = memory.sequences(64, LENGTH)
    assert drawn.action.dtype == torch.float32
    assert (drawn.action[:, None] - action).abs().amax((2, 3)).amin(1).max() <= 2**-12
    assert memory.state()["stored"]["action"].nbytes == 2 * action.numel()


@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_the_diet_has_the_asked_share_of_marked_random_episodes(share):
    torch.manual_seed(0)
    group = numbers(filled().frames(20_000, share)["latent"]) // 100
    assert set(group.unique().tolist()) <= {0, 1}
    assert abs((group == 1).float().mean().item() - share) < 0.006


def test_the_diet_of_all_data_draws_policy_episodes_too():
    torch.manual_seed(0)
    group = numbers(filled().frames(20_000, 0.5, random_only=False)["latent"]) // 100
    assert (torch.bincount(group) / 20_000 - 0.25).abs().max() < 0.02


def test_a_missing_group_is_stood_in_for():
    memory = filled(groups=[(False, False)])
    assert set((numbers(memory.frames(100, 1.0)["latent"]) // 100).tolist()) == {0}


@pytest.mark.parametrize("more", [0, 7, 13], ids=["not full", "round once", "round twice"])
def test_recent_draws_are_the_newest_of_each_group(more):
    memory = filled(MemoryConfig(capacity_episodes=40, recent_share=0.5, recent_episodes=2))
    memory.extend(episodes(more, policy=True, marked=True, first=306))
    number = numbers(memory.sequences(480, 3).observation["latent"][:, 0])
    newest = [g * 100 + 6 + (more if g == 3 else 0) - back for g in range(4) for back in (2, 1)]
    assert number[240:].unique().tolist() == newest
    assert torch.bincount(number[240:] // 100).tolist() == [60] * 4
    assert len(number[:240].unique()) == sum(memory.counts.values())


def test_flipping_every_mark_flag_leaves_the_same_draws():
    """Labels choose groups on the way in; once the groups are fixed, no draw looks at a flag."""
    one, other = filled(), filled()
    other.mark.logical_not_()
    told = []
    for memory in (one, other):
        torch.manual_seed(3)
        draws = memory.sequences(32, 4), memory.any_sequences(32, 4), memory.newest_sequences(32, 4, 2)
        told.append([part for draw in draws for part in (draw.observation["latent"], *draw[1:])])
        told[-1] += [memory.frames(32, 0.05)["latent"], memory.frames(32, 0.5, random_only=False)["latent"]]
    assert len(told[0]) == 14 and all(torch.equal(a, b) for a, b in zip(*told, strict=True))


def test_a_window_tells_where_it_begins_and_when_the_policy_let_go():
    memory = filled()
    for draw in (memory.sequences(64, 4), memory.newest_sequences(64, 4), memory.any_sequences(64, 4)):
        first = draw.observation["latent"][:, 0, 0].long()
        assert torch.equal(draw.start, first % 1000) and len(draw.start.unique()) > 4
        assert torch.equal(draw.let_go, first // 1000 % 7)
    starts = memory.newest_sequences(4000, 4, early=11).start  # 9 possible starts, and 11 more at the first
    assert (starts == 0).float().mean() == pytest.approx(12 / 20, abs=0.04)


def test_state_round_trip_draws_the_same():
    memory = filled()
    twin = Memory({"latent": ((2,), torch.int32)}, ACTIONS, LENGTH, MemoryConfig(capacity_episodes=40))
    twin.load_state(memory.state())
    assert twin.counts == memory.counts and len(twin) == 24
    torch.manual_seed(1)
    a = memory.sequences(16, 4)
    torch.manual_seed(1)
    b = twin.sequences(16, 4)
    assert torch.equal(a.observation["latent"], b.observation["latent"]) and torch.equal(a.start, b.start)
    memory.extend(episodes(7, False, False, first=50))
    twin.load_state(memory.state())
    assert torch.equal(twin.observation["latent"], memory.observation["latent"])
    assert torch.equal(twin.let_go, memory.let_go) and memory.let_go.any()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="capacity_episodes"):
        MemoryConfig(capacity_episodes=3)
    with pytest.raises(ValueError, match="recent_share"):
        MemoryConfig(recent_share=1.5)
    with pytest.raises(ValueError, match="recent_episodes"):
        MemoryConfig(recent_episodes=0)
    with pytest.raises(ValueError, match="window of 13"):
        filled().sequences(4, 13)
