"""Replay: groups, FIFO, what is drawn, and that labels only choose."""

import pytest
import torch

from mirrormark.training.replay_buffer import Episodes, ReplayBuffer

LENGTH, ACTIONS = 12, 3


def episodes(n: int, policy: bool, marked: bool, first: int = 0) -> Episodes:
    """Episode i carries the number first + i in every frame, so that draws can be traced."""
    number = torch.arange(first, first + n)
    tokens = (number[:, None, None] * 1000 + torch.arange(LENGTH)[None, :, None]).expand(n, LENGTH, 2)
    action = number[:, None, None].expand(n, LENGTH, ACTIONS).float()
    mark = torch.full((n, LENGTH), marked)
    handover = number % 7  # traced like the rest
    flags = torch.full((n,), policy), torch.full((n,), marked)
    return Episodes({"tokens": tokens}, action, mark, *flags, handover)


def empty(capacity: int = 40) -> ReplayBuffer:
    return ReplayBuffer({"tokens": ((2,), torch.int32)}, ACTIONS, LENGTH, capacity)


def filled(groups=((False, False), (False, True), (True, False), (True, True))) -> ReplayBuffer:
    buffer = empty()
    for i, (policy, marked) in enumerate(groups):
        buffer.extend(episodes(6, policy, marked, first=100 * i))
    return buffer


def numbers(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[..., 0].long() // 1000


def test_each_group_is_first_in_first_out():
    buffer = empty(16)
    for first in range(0, 12, 3):
        buffer.extend(episodes(3, policy=False, marked=True, first=first))
    assert buffer.counts == {
        "random_unmarked": 0,
        "random_marked": 4,
        "policy_unmarked": 0,
        "policy_marked": 0,
    }
    stored = numbers(buffer.observation["tokens"][4:8, 0]).tolist()
    assert sorted(stored) == [8, 9, 10, 11]


def test_more_new_episodes_than_room_keeps_the_newest():
    buffer = empty(16)
    buffer.extend(episodes(9, policy=True, marked=False))
    assert sorted(numbers(buffer.observation["tokens"][8:12, 0]).tolist()) == [5, 6, 7, 8]


@pytest.mark.parametrize("filled_groups", [1, 2, 3, 4])
def test_groups_are_drawn_evenly(filled_groups):
    groups = [(False, False), (False, True), (True, False), (True, True)][:filled_groups]
    buffer = filled(groups=groups)
    group = numbers(buffer.sequences(48, 5).observation["tokens"][:, 0]) // 100
    assert torch.bincount(group, minlength=filled_groups).tolist() == [48 // filled_groups] * filled_groups


def test_windows_are_contiguous_and_carry_their_own_actions():
    batch = filled().sequences(64, 5)
    frame = batch.observation["tokens"][..., 0].long() % 1000
    assert (frame.diff(dim=1) == 1).all()
    assert frame.min() == 0 and frame.max() == LENGTH - 1  # both ends of the episode are reached
    assert (batch.action[..., 0].long() == numbers(batch.observation["tokens"])).all()


def test_every_stored_episode_is_drawn_and_no_empty_room():
    seen = numbers(filled().sequences(2000, 2).observation["tokens"][:, 0]).unique()
    assert seen.tolist() == [100 * g + i for g in range(4) for i in range(6)]


def test_windows_draws_every_stored_episode_alike_whatever_its_group():
    buffer = empty(40)
    buffer.extend(episodes(9, policy=False, marked=False))
    buffer.extend(episodes(1, policy=True, marked=True, first=9))
    torch.manual_seed(0)
    batch = buffer.windows(20_000, 5)
    shares = torch.bincount(numbers(batch.observation["tokens"][:, 0])) / 20_000
    assert len(shares) == 10 and (shares - 0.1).abs().max() < 0.01
    frame = batch.observation["tokens"][..., 0].long() % 1000
    assert (frame.diff(dim=1) == 1).all() and frame.min() == 0 and frame.max() == LENGTH - 1
    assert (batch.action[..., 0].long() == numbers(batch.observation["tokens"])).all()
    grouped = numbers(buffer.sequences(20_000, 5).observation["tokens"][:, 0])
    assert (grouped == 9).float().mean() > 0.4  # what a draw by groups would do


def test_the_newest_are_the_last_iterations_policy_episodes_each_as_likely_as_every_other():
    buffer = filled()
    buffer.extend(episodes(1, True, False, first=210))
    buffer.extend(episodes(3, True, True, first=310))
    buffer.extend(episodes(3, False, True, first=400))  # motor babbling is not asked
    twin = empty()
    twin.load_state(buffer.state())
    for one in (buffer, twin):
        drawn = numbers(one.newest(8000, 3).observation["tokens"][:, 0])
        found, counts = drawn.unique(return_counts=True)
        assert found.tolist() == [210, 310, 311, 312]
        assert (counts / 8000 - 0.25).abs().max() < 0.03


def test_before_there_is_a_policy_babbling_stands_in():
    batch = filled(groups=[(False, True)]).newest(200, 3)
    assert set(numbers(batch.observation["tokens"][:, 0]).tolist()) == set(range(6))


def test_actions_kept_in_half_precision_come_out_as_float32():
    fields = {"tokens": ((2,), torch.uint8)}
    buffer = ReplayBuffer(fields, ACTIONS, LENGTH, 8, action_dtype=torch.float16)
    made = episodes(2, policy=False, marked=False)
    action = torch.rand(made.action.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    buffer.extend(made._replace(action=action, observation={"tokens": made.observation["tokens"] * 0}))
    drawn = buffer.sequences(64, LENGTH)
    assert drawn.action.dtype == torch.float32
    assert (drawn.action[:, None] - action).abs().amax((2, 3)).amin(1).max() <= 2**-12
    assert buffer.state()["stored"]["action"].nbytes == 2 * action.numel()


@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_frames_have_the_asked_share_of_marked_random_episodes(share):
    torch.manual_seed(0)
    group = numbers(filled().frames(20_000, share, babbling_only=True)["tokens"]) // 100
    assert set(group.unique().tolist()) <= {0, 1}
    assert abs((group == 1).float().mean().item() - share) < 0.006


def test_frames_of_all_data_draw_policy_episodes_too():
    torch.manual_seed(0)
    group = numbers(filled().frames(20_000, 0.5, babbling_only=False)["tokens"]) // 100
    assert (torch.bincount(group) / 20_000 - 0.25).abs().max() < 0.02


def test_a_missing_group_is_stood_in_for():
    buffer = filled(groups=[(False, False)])
    assert set((numbers(buffer.frames(100, 1.0, True)["tokens"]) // 100).tolist()) == {0}


@pytest.mark.parametrize(("share", "marked"), [(0.0, 0), (0.01, 1), (0.25, 5)])
def test_a_diet_of_windows_has_its_share_of_marked_ones_and_at_least_one_if_any(share, marked):
    """S3, D5: 80 frames in 20 windows of 4 consecutive ones, of babbling only."""
    tokens = filled().diet(80, 4, share, babbling_only=True)["tokens"].unflatten(0, (20, 4))
    assert (tokens[..., 0].diff(dim=1) == 1).all()  # one episode, frame after frame
    group = numbers(tokens[:, 0]) // 100
    assert set(group.tolist()) <= {0, 1} and (group == 1).sum() == marked


def test_a_diet_of_single_frames_is_drawn_independently():
    torch.manual_seed(0)
    tokens = filled().diet(20_000, 1, 0.03, babbling_only=True)["tokens"]
    group = numbers(tokens) // 100
    assert set(group.unique().tolist()) == {0, 1}
    assert (group == 1).float().mean().item() == pytest.approx(0.03, abs=0.006)


def test_no_label_ever_leaves():
    """What a draw holds: what was sensed and done, and when in the episode."""
    buffer = filled()
    for batch in (buffer.sequences(4, 3), buffer.windows(4, 3), buffer.newest(4, 3)):
        assert batch._fields == ("observation", "action", "start", "handover")
        assert set(batch.observation) == {"tokens"}
    for frames in (buffer.frames(4, 0.5, True), buffer.diet(8, 2, 0.5, True)):
        assert set(frames) == {"tokens"}


def test_flipping_every_mark_flag_leaves_the_same_draws():
    """Labels choose groups on the way in; once the groups are fixed, no draw looks at a flag."""
    one, other = filled(), filled()
    other.mark.logical_not_()
    told = []
    for buffer in (one, other):
        torch.manual_seed(3)
        draws = buffer.sequences(32, 4), buffer.windows(32, 4), buffer.newest(32, 4, 2)
        told.append([part for batch in draws for part in (batch.observation["tokens"], *batch[1:])])
        told[-1] += [
            buffer.frames(32, 0.05, True)["tokens"],
            buffer.frames(32, 0.5, babbling_only=False)["tokens"],
        ]
    assert len(told[0]) == 14 and all(torch.equal(a, b) for a, b in zip(*told, strict=True))


def test_a_window_tells_where_it_begins_and_when_the_policy_handover():
    buffer = filled()
    for batch in (buffer.sequences(64, 4), buffer.newest(64, 4), buffer.windows(64, 4)):
        first = batch.observation["tokens"][:, 0, 0].long()
        assert torch.equal(batch.start, first % 1000) and len(batch.start.unique()) > 4
        assert torch.equal(batch.handover, first // 1000 % 7)
    starts = buffer.newest(4000, 4, early=11).start  # 9 possible starts, and 11 more at the first
    assert (starts == 0).float().mean() == pytest.approx(12 / 20, abs=0.04)


def test_state_round_trip_draws_the_same():
    buffer = filled()
    twin = empty(40)
    twin.load_state(buffer.state())
    assert twin.counts == buffer.counts and len(twin) == 24
    torch.manual_seed(1)
    a = buffer.sequences(16, 4)
    torch.manual_seed(1)
    b = twin.sequences(16, 4)
    assert torch.equal(a.observation["tokens"], b.observation["tokens"]) and torch.equal(a.start, b.start)
    buffer.extend(episodes(7, False, False, first=50))
    twin.load_state(buffer.state())
    assert torch.equal(twin.observation["tokens"], buffer.observation["tokens"])
    assert torch.equal(twin.handover, buffer.handover) and buffer.handover.any()


def test_a_window_longer_than_an_episode_is_refused():
    with pytest.raises(ValueError, match="window of 13"):
        filled().sequences(4, 13)


def test_skipping_to_a_count_leaves_the_same_buffer_once_all_is_overwritten():
    straight, skipped = empty(16), empty(16)
    for first in range(0, 12, 3):
        straight.extend(episodes(3, False, True, first))
    skipped.skip_to([0, 6, 0, 0])
    for first in (6, 9):
        skipped.extend(episodes(3, False, True, first))
    assert skipped.written == straight.written
    assert torch.equal(skipped.observation["tokens"], straight.observation["tokens"])
