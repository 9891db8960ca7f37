"""Put an agent into the package: what `make demo` examines and `mirrormark lab` shows.

    python experiments/ship.py SNAPSHOT BODY          the agent, without its tokenizer if that is shipped
    python experiments/ship.py SNAPSHOT BODY --tokenizer   only that
    python experiments/ship.py SNAPSHOT BODY --to X   the same into the folder X, to be sent or examined

Weights in bf16, without optimisers, value and slow copies; every file is checked by its SHA-256 when loaded.
"""

import argparse
import shutil
from pathlib import Path

from torch import Tensor

from mirrormark.training.env_config import EnvConfig
from mirrormark.training.weights import SHIPPED, TOKENIZER, find, read, save_weights, shipped

MOST_BYTES = 14_000_000


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("snapshot", type=Path)
    ask.add_argument("body")
    ask.add_argument("--tokenizer", action="store_true")
    ask.add_argument("--to", type=Path, default=SHIPPED)
    got = ask.parse_args()
    metadata, weights = read(find(got.snapshot))
    tokenizer = {name: weight for name, weight in weights.items() if name.startswith(TOKENIZER)}
    there = shipped(f"{got.body}-tokenizer")
    name, kept = got.body, weights
    if got.tokenizer:
        name, kept = f"{got.body}-tokenizer", tokenizer
    elif there is not None and _same(tokenizer, read(there)[1]):
        metadata["tokenizer"] = there.name
        kept = {name: weight for name, weight in weights.items() if name not in tokenizer}
    metadata["env"]["threads"] = EnvConfig().threads  # of the machine on which it was trained
    shutil.rmtree(got.to / name, ignore_errors=True)
    place = save_weights(got.to, name, kept, metadata)
    size = sum(file.stat().st_size for file in place.iterdir())
    print(f"{place}: {size / 1e6:.1f} MB" + ("" if size <= MOST_BYTES else ", more than may be shipped"))


def _same(tokenizer: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(name in other and weight.equal(other[name]) for name, weight in tokenizer.items())


main()
