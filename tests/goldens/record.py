"""Records what must not change by accident: `python tests/goldens/record.py OUT.json`, one thread, about two
minutes. Two commits agree when compare.py finds no difference (compare.sh runs both).

Everything is kept twice: as SHA-256, to be compared to the bit on one machine, and as numbers, to be compared
within tolerances on another. Weights and Adam's averages are sets of tensors: neither their names nor their
order count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import adapter
import numpy as np
import torch
from torch import Tensor

if __name__ == "__main__":  # read when each library starts its threads, which is later than its import
    for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[_name] = "1"

HERE = Path(__file__).parent
GOLDENS = HERE / "goldens.json"
WINDOWS = HERE / "windows.npz"
"""64 windows of 24 frames of the shipped infant's life, as tokens and actions: `--windows` makes it anew."""
BODIES = ("infant", "arm")
BLOCK_STEPS, BLOCKS = 20, 6  # one more block than an episode has: the next one begins within it
EXAM_RUNS = 20
Record = dict[str, Any]


def sha(*arrays: np.ndarray | Tensor) -> str:
    """Of values, as float64: the same whatever type holds them."""
    digest = hashlib.sha256()
    for array in arrays:
        values = array.detach().cpu().double().numpy() if isinstance(array, Tensor) else array
        digest.update(np.ascontiguousarray(values, np.float64).tobytes())
    return digest.hexdigest()


def numbers(array: np.ndarray | Tensor) -> list[float]:
    """Mean, deviation and a weighted mean that knows where each value stands; NaN counts as 0."""
    values = array.detach().cpu().double().numpy() if isinstance(array, Tensor) else array
    flat = np.nan_to_num(np.asarray(values, np.float64).ravel(), posinf=1e9, neginf=-1e9)
    place = np.cos(np.arange(len(flat)))
    return [float(flat.mean()), float(flat.std()), float((flat * place).mean())]


def of_tensors(tensors: Iterable[Tensor], before: Iterable[Tensor] | None = None) -> Record:
    """A set of tensors: one hash, and of each its size, its norm and how far it has moved, sorted."""
    kept = [t.detach().cpu().double().flatten() for t in tensors]
    rows = [[len(t), float(t.norm())] for t in kept]
    if before is not None:
        for row, now, then in zip(rows, kept, before, strict=True):
            row.append(float((now - then.cpu().double().flatten()).norm()))
    hashes = sorted(sha(t) for t in kept)
    return {"sha256": hashlib.sha256("".join(hashes).encode()).hexdigest(), "tensors": sorted(rows)}


def training(name: str, rates: dict[str, float] | None = None) -> Record:
    """Metrics of each iteration; weights, Adam's averages and random state after the last."""
    return of_training(adapter.training(name, rates), adapter.ITERATIONS[name])


def of_training(run: adapter.Training, iterations: int) -> Record:
    """The same of any run that has not begun."""
    before = [p.detach().clone() for p in run.weights()]
    metrics = [run.iterate() for _ in range(iterations)]
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else ())]
    return {
        "metrics": metrics,
        "weights": of_tensors(run.weights(), before),
        "moments": of_tensors(run.moments()),
        "random_state": {"sha256": sha(*states)},
    }


def environment(body: str, condition: str) -> Record:
    """An episode and the beginning of the next one, with fixed actions; hashes of every block of steps."""
    symbolic = body == "infant" and condition == "mirror"
    senses = ("vision", "proprioception", "cell") if symbolic else ("vision", "proprioception")
    n, seed = 4, 11
    env = adapter.Environment(body, n, condition, senses, seed)
    rng = np.random.default_rng(3)
    frames, actions = [env.first], rng.uniform(-1, 1, (BLOCK_STEPS * BLOCKS, n, env.actions))
    held = np.repeat(actions[::10], 10, axis=0).astype(np.float32)
    found: Record = {}
    for t, action in enumerate(held):
        frames.append(env.step(action))
        if (t + 1) % BLOCK_STEPS == 0:
            block: Record = {}
            for part in (0, 1):
                for name in frames[0][part]:
                    values = np.stack([frame[part][name] for frame in frames]).astype(np.float64)
                    block[name] = {"sha256": sha(values), "numbers": numbers(values)}
            found[f"steps {t + 2 - BLOCK_STEPS}-{t + 1}"] = block
            frames = []
    pairs = env.paired_frames()
    found["paired frames"] = {k: {"sha256": sha(v), "numbers": numbers(v)} for k, v in pairs.items()}
    return found


def babbling() -> Record:
    """What each kind of motor babbling does."""
    joints = np.random.default_rng(4).uniform(-1, 1, (100, 3, 12)).astype(np.float32)
    acts = {kind: adapter.babbling(kind, [0, 1, 2], joints) for kind in adapter.BABBLING}
    return {kind: {"sha256": sha(act), "numbers": numbers(act)} for kind, act in acts.items()}


def windows() -> tuple[Tensor, Tensor]:
    """Tokens (64, 24, K) and actions (64, 24, A)."""
    stored = np.load(WINDOWS)
    return torch.from_numpy(stored["tokens"]).long(), torch.from_numpy(stored["action"]).float()


def shipped_agent() -> Record:
    """The shipped infant on stored windows: what it sees, predicts, dreams and does."""
    agent, (tokens, action) = adapter.Shipped("infant"), windows()
    hidden, table = agent.predict(tokens, action)
    following = table.gather(-1, tokens[:, 1:, :, None]).squeeze(-1)
    stepped = agent.step_by_step(tokens, action, agent.context - 1)
    mean, std = agent.policy(tokens[:, 1:], hidden)
    c = agent.context
    dreamed = agent.dream(tokens[:, :c], action[:, : c - 1], seed=0)
    found = {
        "hidden": hidden,
        "log_probs": table.clamp_min(-100.0),
        "log_prob_of_next": following.sum(-1),
        "policy_mean": mean,
        "policy_std": std,
        "self_prior": agent.self_prior(tokens),
        "free_energy": agent.free_energy(tokens),
        "dream_first_action": dreamed["action"][:, 0],
        **{f"dream_{name}": value for name, value in dreamed.items()},
        **{f"decoded_{name}": value for name, value in agent.decode(tokens[:, 0]).items()},
    }
    seen, _ = adapter.Environment("infant", 4, "mirror", ("vision", "proprioception"), 11).first
    found["encoded"] = agent.encode(seen)
    record = {name: {"sha256": sha(value), "numbers": numbers(value)} for name, value in found.items()}
    record["step_by_step"] = {"largest_difference": float((stepped - hidden).abs().max())}
    return record


def on_policy() -> Record:
    """Every field that value and policy learn from, on a fixed buffer, after two iterations."""
    run = adapter.training("buffer/swift")
    for _ in range(2):
        run.iterate()
    fields = adapter.on_policy(run).fields
    return {name: {"sha256": sha(value), "numbers": numbers(value)} for name, value in fields.items()}


def exam(body: str, condition: str, runs: int = EXAM_RUNS) -> Record:
    """Each run of a shipped agent's exam."""
    outcome, frames = adapter.Shipped(body).exam(condition, runs)
    rows = {}
    for name, values in outcome.items():
        listed = [None if isinstance(v, float) and v != v else v for v in values.tolist()]
        rows[name] = listed
    return {"runs": rows, **{name: {"sha256": sha(values)} for name, values in frames.items()}}


def make_windows() -> None:
    """Frames of exams before a mirror and before a bare wall, of 16 runs each, as tokens."""
    agent, tokens, actions = adapter.Shipped("infant"), [], []
    for condition in ("mirror", "absent"):
        _, frames = agent.exam(condition, 16)
        action = frames.pop("action")
        for start in (0, 24):
            part = {name: value[:, start : start + 24] for name, value in frames.items()}
            flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in part.items()}
            tokens.append(agent.encode(flat).unflatten(0, (16, 24)).numpy().astype(np.uint8))
            actions.append(action[:, start : start + 24].astype(np.float16))
    np.savez_compressed(WINDOWS, tokens=np.concatenate(tokens), action=np.concatenate(actions))


PARTS: dict[str, Callable[[], Record]] = {
    **{
        f"environment/{body}/{condition}": lambda body=body, condition=condition: environment(body, condition)
        for body in BODIES
        for condition in adapter.MIRRORS
    },
    "babbling": babbling,
    **{f"training/{name}": lambda name=name: training(name) for name in adapter.ITERATIONS},
    "shipped_agent": shipped_agent,
    "on_policy": on_policy,
    **{
        f"exam/{body}/{condition}": lambda body=body, condition=condition: exam(body, condition)
        for body in ("infant",)
        for condition in ("mirror", "absent")
    },
}


def record(only: Iterable[str] = (), tell: bool = False) -> Record:
    """All parts, or those whose name begins with one of `only`."""
    wanted = tuple(only)
    found = {}
    for name, part in PARTS.items():
        if not wanted or name.startswith(wanted):
            began = time.perf_counter()
            found[name] = part()
            if tell:
                print(f"{name:32} {time.perf_counter() - began:6.1f} s", flush=True)
    if not found:
        raise ValueError(f"--only {' '.join(wanted)}: no such part; there are {', '.join(PARTS)}.")
    return found


def write(path: Path, found: Record) -> None:
    """One line a part or block, floats with nine digits: what is beyond them is in the hashes."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.9g}")
        if isinstance(value, dict):
            return {key: short(item) for key, item in value.items()}
        return [short(item) for item in value] if isinstance(value, list | tuple) else value

    parts = []
    for name, part in found.items():
        rows = ",\n".join(f'  "{key}": {json.dumps(short(value))}' for key, value in part.items())
        parts.append(f'"{name}": {{\n{rows}\n}}')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=GOLDENS)
    parser.add_argument("--only", nargs="*", default=(), help="parts, by the beginning of their names")
    parser.add_argument(
        "--windows", action="store_true", help="make windows.npz anew, for a new shipped agent"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.windows:
        make_windows()
    found = record(asked.only, tell=True)
    if asked.only and asked.out.exists():  # the other parts stay
        found = json.loads(asked.out.read_text()) | found
    write(asked.out, found)


if __name__ == "__main__":
    main()
