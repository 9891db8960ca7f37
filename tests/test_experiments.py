"""What the experiments measure by: a ruler for dreams, episodes that are lived again, gate 4 by itself."""

import importlib.util
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from mirrormark.life.rollout import encode
from mirrormark.life.setup import build_mind
from mirrormark.life.weights import Loaded
from mirrormark.presets import PRESETS
from mirrormark.world.worlds import Worlds


def experiment(name: str) -> ModuleType:
    """experiments/NAME.py, which is no part of the package."""
    path = Path(__file__).parents[1] / "experiments" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"experiments_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ideal() -> Loaded:
    """A mind with the symbolic eye that has learned nothing."""
    torch.manual_seed(0)
    preset = PRESETS["ideal"]
    mind = build_mind(preset.mind, preset.world.worlds(1)).requires_grad_(False).eval()
    return Loaded(mind, preset.world, {})


@pytest.mark.parametrize("site", ["mark", "yoked"])
def test_the_ruler_of_dreams_agrees_with_the_world(ideal: Loaded, site: str):
    in_dreams = experiment("in_dreams")
    worlds = ideal.world.worlds(6)
    observation, _ = worlds.reset(seed=3, marked=True)
    rng, seen, real = np.random.default_rng(0), [], []
    for _ in range(5):
        action = rng.uniform(-1, 1, (6, worlds.actions)).astype(np.float32)
        for _ in range(4):
            observation, _, _, _, info = worlds.step(action)
        seen.append(encode(ideal.mind, observation))
        real.append(info["hand_mark_distance_m" if site == "mark" else "yoked_distance_m"])
    goal = worlds.patch if site == "mark" else worlds.yoked
    nothing = torch.empty(0)
    past = in_dreams.Past(nothing, nothing, nothing, goal.body, goal.pos, goal.mat)
    told = in_dreams.Ruler(ideal.mind, worlds).cm(torch.stack(seen, 1), past, np.arange(6))
    away = np.abs(told.numpy() - 100 * np.stack(real, 1))
    assert away.mean() < 0.5 and away.max() < 2  # joints are known to a bin of 64
    others = in_dreams.Ruler(ideal.mind, worlds).cm(torch.stack(seen, 1), past, np.arange(6)[::-1])
    assert np.abs(others.numpy() - 100 * np.stack(real, 1)).mean() > 2


def test_an_episode_is_lived_again_with_its_mark_elsewhere(ideal: Loaded, monkeypatch: pytest.MonkeyPatch):
    knowable = experiment("knowable")
    settings = knowable.Settings(Path("none"), episodes=8, sites=4, worlds=4)
    life = knowable.live(ideal, settings)

    def own_site_among_others(worlds: Worlds, _: object) -> list:
        worlds.reset(seed=life.seeds[0], marked=True)
        return [worlds.patch.site(world)._replace(pos=worlds.patch.pos[world].copy()) for world in range(4)]

    monkeypatch.setattr(knowable, "draw_sites", own_site_among_others)
    elsewhere = knowable.Elsewhere(ideal, life, settings)
    cells, off, away = elsewhere.again(0, 60, within_m=1e9)
    real = life.latent[0, 1:61, elsewhere.cell].flatten()
    same, own = (cells == real).all(1), int(away.argmin())
    assert away[own] == pytest.approx(0, abs=1e-9)
    assert same[own] and not same.all()  # its own site is seen as it was
    assert off[own] == (not life.on[0, 60])


def test_a_sequence_model_learns_by_itself_from_marked_everyday_episodes(
    ideal: Loaded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    gate_4 = experiment("gate_4")
    monkeypatch.setattr(gate_4, "LAP", 4)
    monkeypatch.setattr(gate_4, "STRIDE", 1)
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn": 16, "sequences": 2, "frames": 24}
    settings = gate_4.Settings(Path("none"), data=tmp_path / "data", episodes=8, steps=4, looks=2, **sizes)
    laps = gate_4.lived(ideal.world, ideal.mind, replace(settings, share=(1, 2)))
    with pytest.raises(SystemExit, match="--share is 2 2"):
        gate_4.lived(ideal.world, ideal.mind, replace(settings, share=(2, 2)))
    with pytest.raises(SystemExit, match="1 of 2 laps are missing"):
        gate_4.joined(laps)
    second = laps[1].read_bytes()
    data = gate_4.joined(gate_4.lived(ideal.world, ideal.mind, settings))
    assert data["mark"].shape == (8, 101) and data["mark"][:, 0].all()
    laps[1].unlink()  # whoever gathers a lap, it is the same
    assert gate_4.lived(ideal.world, ideal.mind, settings)[1].read_bytes() == second
    mind = gate_4.beginner(ideal, settings)
    before = {name: weight.clone() for name, weight in mind.state_dict().items()}
    memory = gate_4.remember(data, mind, settings)
    assert memory.counts["random_marked"] == len(memory) == 8
    looks = list(gate_4.learn(mind, memory, settings))
    assert [steps for steps, _ in looks] == [2, 4]
    changed = {
        name.split(".")[0] for name, w in mind.state_dict().items() if not torch.equal(w, before[name])
    }
    assert changed == {"dynamics"}
    own = gate_4.beginner(ideal, replace(settings, goes_on=True)).dynamics.state_dict()
    assert all(torch.equal(own[name], weight) for name, weight in ideal.mind.dynamics.state_dict().items())


def test_gate_4_goes_from_gathering_to_its_last_look(
    ideal: Loaded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    gate_4 = experiment("gate_4")
    monkeypatch.setattr(gate_4, "LAP", 24)
    monkeypatch.setattr(gate_4, "STRIDE", 1)
    monkeypatch.setattr(gate_4, "load_weights", lambda *_: ideal)
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn": 16, "sequences": 2, "frames": 24, "held_out": 24}
    gate_4.main(gate_4.Settings(Path("none"), data=tmp_path, episodes=24, steps=1, looks=1, **sizes))
    said = capsys.readouterr().out
    assert "ablation: told where the mark is seen; 24 episodes" in said
    assert "1 steps" in said and "of episodes it learned from" in said


def test_a_mark_is_lost_and_found():
    lost, back = experiment("fading").turns(torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0]]).bool())
    assert lost == pytest.approx(2 / 5) and back == 1.0


def test_a_life_is_done_at_its_first_exam_point_from_there_on(tmp_path: Path):
    side_by_side = experiment("side_by_side")
    asked = side_by_side.SideBySide(tmp_path, tmp_path / "lives.txt", until=8_192)
    assert not side_by_side._done(asked, "one")
    (tmp_path / "one").mkdir()
    exams = tmp_path / "one" / "exams.jsonl"
    exams.write_text('{"episodes": 4096}\n{"episodes": 9000}')  # the second is still being written
    assert not side_by_side._done(asked, "one")
    exams.write_text('{"episodes": 4096}\n{"episodes": 9000}\n')
    assert side_by_side._done(asked, "one")
    assert not side_by_side._done(replace(asked, until=None), "one")


def test_newest_snapshots_come_home_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bring, there, out = experiment("bring"), tmp_path / "there", tmp_path / "out"
    for name in ("one", "two-b", "three"):
        for episodes in (0, 512):
            place = there / name / "snapshots" / f"episodes-{episodes:08d}"
            place.mkdir(parents=True)
            (place / "part-00000.safetensors").write_text(f"{name} {episodes}")
        (there / name / "config.json").write_text("{}")
        (there / name / "exams.jsonl").write_text('{"episodes": 512, "removal_rate": 0.5}\n{"episodes": 1')
    (there / "exams" / "all" / "parts").mkdir(parents=True)
    (there / "exams" / "all" / "results.json").write_text("{}")
    (there / "exams" / "all" / "parts" / "large.npz").write_text("large")
    bring.tell_and_copy(bring.Out(there, out))
    with tarfile.open(out / "logs.tgz") as logs:
        assert [name for name in logs.getnames() if "exams/" in name] == ["exams/all/results.json"]
    assert capsys.readouterr().out.count("512: removal 0.50\n") == 3
    assert len(list(out.glob("*.512.part-*"))) == 2
    (there / "one" / "snapshots" / "episodes-00001024").mkdir()
    (there / "one" / "snapshots" / "episodes-00001024" / "manifest.json").write_text("new")
    bring.tell_and_copy(bring.Out(there, out))  # the third life, and what is new of the first
    came = tuple(path for path in out.iterdir() if path.name != "logs.tgz")
    assert len(came) == 4 and bring.bring(there, out, 9) == []
    bring.unpack(bring.Home(tmp_path / "home", came))
    for name in ("one", "two-b", "three"):
        place = tmp_path / "home" / name / "snapshots" / "episodes-00000512"
        assert (place / "part-00000.safetensors").read_text() == f"{name} 512"


@pytest.mark.parametrize("hears", [True, False])
def test_tokens_that_are_drawn_one_by_one_hear_those_before_them(hears: bool):
    torch.manual_seed(0)
    net = experiment("one_by_one").OneByOne(tokens=4, classes=3, width=8, hears=hears)
    table, tokens = torch.randn(2, 4, 3).log_softmax(-1), torch.zeros(2, 4, dtype=torch.int64)
    assert torch.allclose(net(table, tokens), table, atol=1e-6)  # it begins by adding nothing
    torch.nn.init.normal_(net.out.weight)
    other = tokens.clone()
    other[:, 1] = 2
    changed = (net(table, tokens) - net(table, other)).abs().amax((0, 2)) > 1e-6
    assert changed.tolist() == [False, False, hears, hears]


def test_only_who_hears_knows_that_two_tokens_agree():
    one_by_one = experiment("one_by_one")
    coin = torch.randint(2, (512, 1), generator=torch.Generator().manual_seed(0))
    came, table = coin.expand(512, 2), torch.full((512, 2, 2), 0.5).log()
    settings = one_by_one.Settings("none", steps=80, frames=64, width=16, learning_rate=1e-2)
    nets = {hears: one_by_one.learned(table, came, settings, hears) for hears in (True, False)}
    bit = float(np.log(2))
    assert one_by_one.cost_nats(table, came, None) == pytest.approx(2 * bit, abs=1e-4)
    assert one_by_one.cost_nats(table, came, nets[False]) == pytest.approx(2 * bit, abs=0.1)
    assert one_by_one.cost_nats(table, came, nets[True]) == pytest.approx(bit, abs=0.1)
    drawn = nets[True].draw(table)
    assert (drawn[:, 0] == drawn[:, 1]).float().mean() > 0.95 and 0.3 < drawn.float().mean() < 0.7


def test_one_by_one_tells_what_each_way_of_drawing_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ideal: Loaded
):
    one_by_one, preset = experiment("one_by_one"), PRESETS["smoke"]
    mind = build_mind(preset.mind, preset.world.worlds(1)).requires_grad_(False).eval()
    loaded = Loaded(mind, preset.world, {})
    monkeypatch.setattr(one_by_one, "LAP", 2)
    monkeypatch.setattr(one_by_one, "load_weights", lambda _: loaded)
    one_by_one.main(one_by_one.Settings("none", episodes=2, held_out=8, steps=1, frames=4, width=8))
    said = capsys.readouterr().out
    assert all(f"{way}: " in said for way in ("each by itself", "deaf", "one by one"))
    monkeypatch.setattr(one_by_one, "load_weights", lambda _: ideal)
    with pytest.raises(SystemExit, match="foretells all tokens at once"):
        one_by_one.main(one_by_one.Settings("none"))
