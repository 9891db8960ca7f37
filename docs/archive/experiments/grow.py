"""Grow a mind for some minutes and print the gates as JSON lines: the quick look behind docs/notebook.md.

    python experiments/grow.py NAME --minutes 5 --device cuda --set life.learner.dreams=2048 ...

NAME is a preset. Fields are set by dotted path on (world, mind, life). Nothing is saved: for that there is
`mirrormark train`.
"""

import argparse
import ast
import json
import time
from dataclasses import fields, replace

import torch

from mirrormark.life.commands import shared_codec
from mirrormark.life.held_out import hold_out
from mirrormark.life.indicators import behave, indicators
from mirrormark.life.live import Life
from mirrormark.life.rollout import encode
from mirrormark.presets import PRESETS, Preset


def put(config, path: list[str], value):
    """A copy of a frozen dataclass tree with one field changed."""
    if path[0] not in {f.name for f in fields(config)}:
        raise SystemExit(f"{path[0]!r} is no field of {type(config).__name__}")
    inner = getattr(config, path[0])
    return replace(config, **{path[0]: value if len(path) == 1 else put(inner, path[1:], value)})


def literal(text: str):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@torch.no_grad()
def details(mind, pairs) -> dict[str, float]:
    """Where G comes from, posture or vision tokens, with and without the mark; how many tokens it changes."""
    shown, hidden = (encode(mind, side, sample=False) for side in (pairs.with_mark, pairs.without_mark))
    angles = mind.codec.tokens["proprioception"].stop
    cost = {
        "marked": -mind.self_prior.per_token_log_prob(shown),
        "unmarked": -mind.self_prior.per_token_log_prob(hidden),
    }
    found = {f"G_posture_{k}": float(v[:, :angles].sum(-1).mean()) for k, v in cost.items()}
    found |= {f"G_vision_{k}": float(v[:, angles:].sum(-1).mean()) for k, v in cost.items()}
    found["G_sd_unmarked"] = float(cost["unmarked"].sum(-1).std())
    found["tokens_changed"] = float((shown != hidden).float().sum(-1).mean())
    if hasattr(mind.codec, "silent_token"):
        found["silent_unmarked"] = float((hidden[:, angles:] == mind.codec.silent_token).float().mean())
    return found


def borrowed(preset):
    """The preset with the codec that life.codec_from names, as `mirrormark train` takes it over."""
    codec = shared_codec(preset.life.codec_from, preset.world.body)
    if codec is None:
        return preset, None
    schedule = replace(preset.life.schedule, codec_laps=0)
    life, mind = (
        replace(preset.life, schedule=schedule),
        replace(preset.mind, codec=replace(codec.config, hush=preset.mind.codec.hush)),
    )
    return replace(preset, life=life, mind=mind), codec


def rooms(life: Life, n: int, device: str) -> dict[str, dict[str, float]]:
    """What the policy does before a mirror, a bare wall and a cover, in the same worlds."""
    found = {}
    for kind in ("present", "absent", "covered"):
        mirror = replace(life.world.mirror, kind=kind)
        worlds = life.world.worlds(n, "cuda" if device == "cuda" else "cpu", mirror)
        found[kind] = {k: round(v, 4) for k, v in behave(life.mind, worlds, 1000)._asdict().items()}
    return found


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("preset")
    ask.add_argument("--minutes", type=float, default=5.0)
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--look-every-s", type=float, default=45.0)
    ask.add_argument("--set", nargs="*", default=[])
    got = ask.parse_args()
    preset = PRESETS[got.preset]
    for item in got.set:
        path, value = item.split("=", 1)
        preset = put(preset, path.split("."), literal(value))
    assert isinstance(preset, Preset)
    start = time.perf_counter()
    held = hold_out(preset.world, preset.life.indicators, got.device)
    preset, codec = borrowed(preset)
    life = Life(preset.world, preset.mind, preset.life, got.seed, got.device)
    if codec is not None:
        life.take_codec(codec)
    exam_worlds = life.worlds(preset.life.indicators.policy_episodes, examined=True)
    looked = start
    print(json.dumps({"ready_s": round(time.perf_counter() - start, 1), "set": got.set}), flush=True)
    for lap in life.schedule.laps():
        metrics = life.live(lap)
        now = time.perf_counter()
        last = now - start > 60 * got.minutes
        turn = lap.phase == "codec" and life.next_lap == preset.life.schedule.codec_laps
        if now - looked > got.look_every_s or last or turn:
            found = indicators(life.mind, held, exam_worlds if "policy" in lap.stages else None)
            row = {
                "s": round(now - start, 1),
                "lap": lap.index,
                "episodes": lap.episodes_after,
                "steps": life.learner.steps,
            }
            found |= details(life.mind, held.pairs)
            row |= {k: float(f"{v:.4g}") for k, v in (found | metrics).items() if v is not None}
            print(json.dumps(row), flush=True)
            looked = time.perf_counter()
        if last:
            break
    print(json.dumps({"rooms": rooms(life, 256, got.device)}), flush=True)


main()
