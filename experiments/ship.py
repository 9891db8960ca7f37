"""Put an agent into the package: what `make demo` examines and `mirrormark lab` shows.

    python experiments/ship.py SNAPSHOT BODY          the agent, without its tokenizer if that is shipped
    python experiments/ship.py SNAPSHOT BODY --codec  only its tokenizer
    python experiments/ship.py SNAPSHOT BODY --to X   the same into the folder X, to be sent or examined

Weights in bf16, without optimisers, value and slow copies; every file is checked by its SHA-256 when loaded.
"""

import argparse
import shutil
from pathlib import Path

from torch import Tensor

from mirrormark.training.env_config import WorldSetup
from mirrormark.training.weights import CODEC, SHIPPED, find, read, save_weights, shipped

MOST_BYTES = 14_000_000


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("snapshot", type=Path)
    ask.add_argument("body")
    ask.add_argument("--codec", action="store_true")
    ask.add_argument("--to", type=Path, default=SHIPPED)
    got = ask.parse_args()
    about, weights = read(find(got.snapshot))
    codec = {name: weight for name, weight in weights.items() if name.startswith(CODEC)}
    there = shipped(f"{got.body}-codec")
    name, kept = got.body, weights
    if got.codec:
        name, kept = f"{got.body}-codec", codec
    elif there is not None and _same(codec, read(there)[1]):
        about["codec"] = there.name
        kept = {name: weight for name, weight in weights.items() if name not in codec}
    about["world"]["threads"] = WorldSetup().threads  # of the machine on which it was trained
    shutil.rmtree(got.to / name, ignore_errors=True)
    place = save_weights(got.to, name, kept, about)
    size = sum(file.stat().st_size for file in place.iterdir())
    print(f"{place}: {size / 1e6:.1f} MB" + ("" if size <= MOST_BYTES else ", more than may be shipped"))


def _same(codec: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(name in other and weight.equal(other[name]) for name, weight in codec.items())


main()
