"""What must not change by accident, recomputed and compared within tolerances that another processor keeps
and a learning rate that is 1% off does not. To the bit, on one machine: compare.sh. A commit that changes a
golden on purpose records it anew (`python tests/goldens/record.py`) and says so and why.
"""

import json
from collections.abc import Iterator
from functools import cache

import adapter
import pytest
import record
import torch
from compare import differences

GOLDENS = json.loads(record.GOLDENS.read_text())
CHEAP = [name for name in record.PARTS if not name.startswith("exam/")]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def learned(name: str) -> record.Record:
    return record.training(name)


def unlike(name: str, found: record.Record) -> list[str]:
    return differences(GOLDENS[name], json.loads(json.dumps(found)), tolerant=True, where=name)


def test_every_part_is_kept():
    assert set(GOLDENS) == set(record.PARTS)


@pytest.mark.parametrize("name", CHEAP)
def test_nothing_has_changed(name: str):
    found = learned(name.removeprefix("training/")) if name.startswith("training/") else record.PARTS[name]()
    assert not unlike(name, found)


def test_the_shipped_infant_takes_its_exam_as_before():
    assert not unlike("exam/infant/mirror", record.PARTS["exam/infant/mirror"]())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exam/infant/absent"])
def test_exams_are_taken_as_before(name: str):
    assert not unlike(name, record.PARTS[name]())


# Do the goldens bite? --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "optimizer"),
    [("smoke", "tokenizer"), *((r, o) for r in ("buffer/swift", "buffer/paper") for o in adapter.LEARNS[r])],
)
def test_a_learning_rate_that_is_one_percent_off_is_noticed(run: str, optimizer: str):
    found = record.training(run, {optimizer: 1.01})
    weights = differences(
        GOLDENS[f"training/{run}"]["weights"], json.loads(json.dumps(found["weights"])), tolerant=True
    )
    assert weights


@pytest.mark.parametrize("run", ["buffer/swift", "buffer/paper"])
def test_rounding_is_not_noticed(run: str):
    """Two threads sum in another order, and other kernels multiply."""
    torch.set_num_threads(2)
    with torch.backends.mkldnn.flags(enabled=False):
        found = record.training(run)
    assert not unlike(f"training/{run}", found)


def test_sets_of_tensors_know_neither_names_nor_order():
    tensors = [torch.randn(3, 2), torch.randn(4), torch.randn(6)]
    assert record.of_tensors(tensors) == record.of_tensors(tensors[::-1])
    assert (
        record.of_tensors(tensors)["sha256"] != record.of_tensors([tensors[0] + 1e-6, *tensors[1:]])["sha256"]
    )


# What holds whatever the numbers ---------------------------------------------------------------------------


@cache
def trained() -> adapter.Training:
    run = adapter.training("buffer/swift")
    for _ in range(2):
        run.iterate()
    return run


def test_step_by_step_is_the_same_as_all_at_once():
    agent, (tokens, action) = adapter.Shipped("infant"), record.windows()
    hidden, _ = agent.predict(tokens, action)
    assert torch.allclose(agent.step_by_step(tokens, action, 5), hidden, atol=1e-4)


def test_at_the_first_step_of_an_iteration_the_policy_is_the_one_that_acted():
    run = trained()
    assert (adapter.on_policy(run).ratio - 1).abs().max() > 1e-3  # it has learned in the iteration before
    adapter.begin_iteration(run)
    assert (adapter.on_policy(run).ratio == 1).all()


def test_what_follows_on_the_handover_is_not_the_policys_doing():
    batches = [adapter.on_policy(trained(), seed) for seed in range(20)]
    last, lambda_ = (torch.cat(parts) for parts in zip(*((b.last, b.lambda_) for b in batches)))
    assert last.any() and not lambda_[last].any()
    before = last[:, 1:] & (lambda_[:, :-1] > 0)
    assert before.sum() == last[:, 1:].sum()


def test_where_the_weight_is_zero_nothing_is_learned():
    run, fields = trained(), adapter.on_policy(trained()).fields
    ignored = fields["weight"] == 0
    assert ignored.any() and not ignored.all()
    other = fields | {"action": torch.where(ignored[..., None], -fields["action"], fields["action"])}

    def gradient(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        torch.manual_seed(0)  # the entropy is estimated by a sample
        loss, _ = adapter.on_policy_losses(run, batch)
        return torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(run.agent.policy.parameters()))]
        )

    assert torch.equal(gradient(fields), gradient(other))
    counted = fields | {"action": -fields["action"]}
    assert not torch.allclose(gradient(fields), gradient(counted))
