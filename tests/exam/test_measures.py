"""Measures on tables whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from synthetic_tables import make

from mirrormark.exam import measures, tables
from mirrormark.exam.before_after import before_after


def of(table, condition):
    return table[table["condition"] == condition]


def test_one_seed_gives_wilson_and_several_give_seed_dots():
    episodes, _ = make({"mirror": 0.5}, seeds=(0,))
    one = measures.rate(episodes)
    assert one.method.startswith("Wilson") and one.caption == "n=80 runs, 1 training seed"
    episodes, _ = make({"mirror": 0.5}, seeds=(0, 1, 2), runs=40)
    three = measures.rate(episodes)
    assert [seed.n for seed in three.seeds] == [40, 40, 40] and "3 seed means" in three.method
    assert three.rate == pytest.approx(episodes["removed"].mean())


def test_comparisons_are_paired_by_world_and_holm_corrected():
    episodes, _ = make({"mirror": 0.8, "absent": 0.1, "iid": 0.15}, chance_runs=300)
    exam = of(episodes, "mirror")
    shuffled = of(episodes, "absent").sample(frac=1, random_state=0)
    found = measures.compare(
        exam,
        {
            "absent": (shuffled, "removed"),
            "iid": (of(episodes, "iid"), "removed"),
            "yoked": (exam, "yoked_touched"),
        },
    )
    assert [c.control for c in found] == ["absent", "iid", "yoked"]
    assert all(c.interval.low > 0 and c.p <= c.p_holm < 0.01 for c in found)
    assert [c.n for c in found] == [80, 380, 80]
    ordered = measures.compare(exam, {"absent": (of(episodes, "absent"), "removed")})
    assert ordered[0].interval == found[0].interval


def test_comparison_across_seeds_counts_seeds_not_runs():
    episodes, _ = make({"mirror": 0.8, "absent": 0.1, "iid": 0.15}, seeds=(0, 1, 2), chance_runs=300)
    exam = of(episodes, "mirror")
    found = measures.compare(exam, {name: (of(episodes, name), "removed") for name in ("absent", "iid")})
    assert [c.n for c in found] == [3, 3]
    assert all(c.interval.low > 0.3 for c in found)


def test_comparison_names_envs_that_are_missing():
    episodes, _ = make({"mirror": 0.8, "absent": 0.1})
    with pytest.raises(ValueError, match="same exam seeds"):
        measures.compare(of(episodes, "mirror"), {"absent": (of(episodes, "absent").iloc[:50], "removed")})


def test_fall_of_g_is_found_and_time_is_taken_out():
    episodes, steps = make({"mirror": 0.7}, fall_nats=12, drift_nats=0)
    found = before_after(episodes, steps)
    assert found is not None and found.matched is not None
    assert found.shift.estimate == pytest.approx(-12, abs=0.5)
    assert found.matched.estimate == pytest.approx(-12, abs=0.5)
    assert found.shift.n == found.pairs == int(episodes["removed"].sum()) and found.shift.unit == "pairs"
    assert found.matched.n == 80 and "this one agent only" in found.speaks_of


def test_drift_alone_is_not_taken_for_an_effect_of_removal():
    """The trap of a before/after without control: G that only falls with time looks like an effect."""
    found = before_after(*make({"mirror": 0.5}, fall_nats=0, drift_nats=20))
    assert found is not None and found.matched is not None and found.matched_control is not None
    assert found.shift.estimate < -8 and found.shift.p < 1e-6
    assert found.matched_control == pytest.approx(-10, abs=0.5)
    assert abs(found.matched.estimate) < 0.5 and found.matched.interval.low < 0 < found.matched.interval.high


def test_without_removal_there_is_no_before_and_after():
    assert before_after(*make({"mirror": 0.0})) is None


def test_few_runs_without_removal_are_no_control_of_time():
    found = before_after(*make({"mirror": 0.95}))
    assert found is not None and found.matched is None and found.matched_control is None
    assert found.matched_missing is not None and "10 runs without removal" in found.matched_missing


def test_before_after_counts_seeds():
    found = before_after(*make({"mirror": 0.5}, seeds=(3, 5, 8), runs=30))
    assert found is not None and set(found.by_seed) == {3, 5, 8}
    for effect in (found.shift, found.matched):
        assert effect is not None and (effect.n, effect.unit) == (3, "training seeds")
    assert "n counts seeds" in found.speaks_of


def exam_of(rng, seeds, removed, kept, seed_sd, run_sd):
    """An exam without effect: G drifts evenly, by an amount that differs between agents and between runs."""
    t_s = 0.25 * np.arange(20)
    n = removed + kept
    episodes = pd.DataFrame(
        [
            {"training_seed": s, "exam_seed": i, "episode": 0, "removed": i < removed, "removed_s": 2.5}
            for s in range(seeds)
            for i in range(n)
        ]
    )
    drift = rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, run_sd, (seeds, n))
    steps = episodes.loc[episodes.index.repeat(20), ["training_seed", "exam_seed", "episode"]]
    g = drift.reshape(-1, 1) * t_s[None] / 5
    return episodes, steps.assign(t_s=np.tile(t_s, len(episodes)), expected_free_energy_nats=g.ravel())


def test_seeds_that_drift_apart_are_no_effect_of_removal():
    """Pooled over runs this finds an effect in about half of the exams; 5% are allowed."""
    rng, exams = np.random.default_rng(5), 80
    made = (exam_of(rng, seeds=3, removed=15, kept=0, seed_sd=3, run_sd=3) for _ in range(exams))
    found = [before_after(*one) for one in made]
    assert sum(one is not None and one.shift.p < 0.05 for one in found) / exams <= 0.10


def test_the_control_of_time_has_an_error_of_its_own():
    """Taken as a constant, ten runs without removal find an effect in half of the exams."""
    rng, exams = np.random.default_rng(6), 80
    made = (exam_of(rng, seeds=1, removed=50, kept=10, seed_sd=0, run_sd=3) for _ in range(exams))
    found = [before_after(*one) for one in made]
    assert sum(one is not None and one.matched is not None and one.matched.p < 0.05 for one in found) <= 8


def test_first_touch_is_censored_where_no_hand_came():
    episodes, steps = make({"mirror": 0.5})
    touched = measures.first_touch(steps, reach_m=0.02)
    assert touched["touched"].sum() == episodes["removed"].sum()
    assert (touched.loc[~touched["touched"], "time_s"] == 4.95).all()
    curve = measures.first_touch_curve(steps, 0.02)
    assert curve.share[-1] == pytest.approx(1 - episodes["removed"].mean())


def test_failures_are_named():
    episodes, steps = make({"mirror": 0.0}, runs=4)
    world = steps["exam_seed"]
    early = steps["t_s"] <= 3.0
    steps.loc[(world == 0) & early, ["mark_px", "mark_in_view"]] = [0.0, 0.0]
    steps.loc[(world == 1) & early, "mark_px"] = 0.0
    steps.loc[(world == 2) & (steps["t_s"] == 2.0), "distance_m"] = 0.03
    counts, labels = measures.failures(episodes, steps)
    assert labels.tolist() == ["out of view", "hidden by hand", "approached", "not approached"]
    assert counts == dict.fromkeys(measures.FAILURES, 1)


@pytest.mark.parametrize(("left", "label"), [(0.2, "hidden by hand"), (0.3, "not approached")])
def test_an_edge_that_peeps_out_is_a_hidden_mark(left, label):
    episodes, steps = make({"mirror": 0.0}, runs=1)
    steps["mark_px"] = np.where(steps["t_s"] <= 3.0, left * 20, 20.0)
    assert measures.failures(episodes, steps)[1].tolist() == [label]


def test_a_removed_run_is_never_called_failed():
    counts, _ = measures.failures(*make({"mirror": 1.0}, runs=10))
    assert sum(counts.values()) == 0


def test_sides_and_breakdown():
    episodes, _ = make({"mirror": 0.6}, runs=30)
    assert measures.sides(episodes) == {
        "left": {"left": 10, "right": 0},
        "middle": {"left": 0, "right": 10},
        "right": {"left": 0, "right": 10},
    }
    by_site = measures.breakdown(episodes, episodes["site"])
    assert {name: found.n for name, found in by_site.items()} == {"chest_geom": 15, "head_geom": 15}


def test_distance_band():
    _, steps = make({"mirror": 0.5}, runs=20)
    band = measures.distance_over_time(steps)
    assert len(band) == 100 and (band["low"] <= band["mean"]).all() and (band["mean"] <= band["high"]).all()
    assert measures.mean_distance_m(steps)["n"] == 20


def test_tables_round_trip_and_name_what_is_missing(tmp_path):
    episodes, _ = make({"mirror": 0.5}, runs=3)
    path = tmp_path / "episodes.parquet"
    tables.write(episodes, path, tables.EPISODES)
    assert tables.read(path, tables.EPISODES).equals(episodes)
    assert [p.name for p in tmp_path.iterdir()] == ["episodes.parquet"]
    with pytest.raises(ValueError, match="'hand' is missing"):
        tables.check(episodes.drop(columns="hand"), tables.EPISODES, "episodes")
    with pytest.raises(ValueError, match="does not exist"):
        tables.read(tmp_path / "none.parquet", tables.STEPS)
    assert np.isnan(episodes.loc[~episodes["removed"], "removed_s"]).all()
