"""One table and one report over all runs, from made-up exams whose truth is known."""

import itertools
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from small_sweeps import fake_exam, fake_train, spec

from mirrormark.exam import statistics, tables
from mirrormark.sweep import results
from mirrormark.sweep.folder import Folder
from mirrormark.sweep.report import learning
from mirrormark.sweep.results import curve, median_interval
from mirrormark.sweep.run import claim, write_results
from mirrormark.sweep.spec import plan
from mirrormark.sweep.status import Seen, write_progress

RATES = {"tone_scale-0.5": 0.2, "tone_scale-1.0": 0.8}


def fake_points(folder, job) -> None:
    rows = [
        {
            "iteration": e,
            "episodes": e,
            "steps": e,
            "removal_rate": 0.1 * job.seed + e / 1000,
            "distance_m": 0.05,
        }
        | {"efe_gap_nats": 1, "snapshot": "x", "seconds": 1.0, "ablation": None}
        for e in (100, 200)
    ]
    (folder.run(job.name) / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """3 seeds × 2 settings; the last seed of the second setting has failed."""
    folder = Folder(tmp_path_factory.mktemp("sweep"))
    one = spec(seeds=3)
    jobs = plan(one)
    claim(folder, one, jobs)
    for job in jobs[:-1]:
        fake_train(folder, job)
        fake_points(folder, job)
        fake_exam(folder.exam(job.name), job.name, job.seed, RATES[job.setting])
    write_progress(folder, {jobs[-1].name: Seen(3, True, "train: killed by signal 9; <oom>")})
    write_results(jobs, folder)
    return folder, jobs, json.loads((folder.path / "results.json").read_text())


def test_one_table_holds_every_run_of_every_exam_and_every_point(swept):
    folder, jobs, _ = swept
    table = pd.read_parquet(folder.path / "runs.parquet")
    exams = table[table["kind"] == "exam"]
    assert exams["job"].nunique() == 5 and (exams.groupby("job").size() == 40 + 40 + 50 + 50).all()
    points = table[table["kind"] == "training"]
    assert (points.groupby("job").size() == 2).all() and set(points["episodes_collected"]) == {100, 200}
    assert set(table["grid.env.tone_scale"]) == {"0.5", "1.0"}
    first = tables.read(folder.exam(jobs[0].name) / "episodes.parquet", tables.EPISODES)
    kept = exams[exams["job"] == jobs[0].name]
    assert kept["removed"].astype(bool).tolist() == first["removed"].tolist()


def test_the_example_in_the_docs_reads_it(swept, capsys):
    folder, _, found = swept
    page = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(example.replace("DIR", str(folder.path)), {})
    told = capsys.readouterr().out
    assert all(f"{seed['successes'] / seed['n']:g}" in told for seed in found["groups"][1]["by_seed"])


def test_settings_stand_side_by_side_with_their_seeds_spread(swept):
    folder, jobs, found = swept
    low, high = found["groups"]
    for group, members in ((low, jobs[:3]), (high, jobs[3:5])):
        rates = []
        for job in members:
            episodes = tables.read(folder.exam(job.name) / "episodes.parquet", tables.EPISODES)
            rates.append(episodes.loc[episodes["condition"] == "mirror", "removed"].mean())
        assert group["rate"] == pytest.approx(np.mean(rates), abs=1e-5)
        assert group["spread"]["sd"] == pytest.approx(np.std(rates, ddof=1), abs=1e-5)
        assert (group["spread"]["lowest"], group["spread"]["highest"]) == (min(rates), max(rates))
    assert low["examined"] == [0, 1, 2] and high["examined"] == [0, 1] and high["seeds"] == [0, 1, 2]


def test_touching_is_what_the_exams_meant_by_it(swept, monkeypatch):
    folder, jobs, _ = swept
    reaches, real = [], results.exam_results
    monkeypatch.setattr(results, "exam_results", lambda *given: reaches.append(given[2]) or real(*given))
    results.summarise(jobs, folder, *results.gather(jobs, folder))
    assert reaches == [0.035, 0.035]


def test_chance_is_counted_once_not_once_a_seed(swept):
    _, _, found = swept
    assert found["groups"][0]["conditions"]["iid"]["n"] == 50
    assert found["groups"][0]["conditions"]["mirror"]["n"] == 120


def test_settings_are_compared_on_the_seeds_that_both_have(swept):
    folder, jobs, found = swept
    (row,) = found["comparisons"]
    assert (row["setting"], row["minus"]) == ("tone_scale-1.0", "tone_scale-0.5") and row["n"] == 2
    rate = {}
    for job in (*jobs[:2], *jobs[3:5]):
        episodes = tables.read(folder.exam(job.name) / "episodes.parquet", tables.EPISODES)
        rate[job.setting, job.seed] = episodes.loc[episodes["condition"] == "mirror", "removed"].mean()
    differences = [rate["tone_scale-1.0", s] - rate["tone_scale-0.5", s] for s in (0, 1)]
    effect = statistics.seed_difference(differences)
    assert row["difference"] == pytest.approx(effect.estimate, abs=1e-5)
    assert row["p"] == row["p_holm"] == pytest.approx(effect.p, rel=1e-4)


def test_comparisons_of_a_page_are_one_holm_family(tmp_path):
    folder = Folder(tmp_path)
    jobs = plan(spec(seeds=2, grid={"env.tone_scale": [0.25, 0.5, 1.0]}))
    for job, rate in zip(jobs, (0.2, 0.2, 0.3, 0.5, 0.8, 0.6)):
        fake_train(folder, job)
        fake_exam(folder.exam(job.name), job.name, job.seed, rate)
    rows = results.compare_settings(
        results.gather(jobs, folder)[0], list(dict.fromkeys((j.setting, j.body) for j in jobs))
    )
    assert len(rows) == 2
    assert [row["p_holm"] for row in rows] == statistics.holm([row["p"] for row in rows])
    assert max(row["p_holm"] / row["p"] for row in rows) == pytest.approx(2)


def test_the_page_tells_failures_and_escapes_what_it_shows(swept):
    folder, jobs, found = swept
    assert [one["job"] for one in found["failed"]] == [jobs[-1].name]
    page = " ".join((folder.path / "report.html").read_text().split())
    assert "5 of 6 runs examined, 1 failed" in page and "&lt;oom&gt;" in page and "<oom>" not in page
    assert f"logs/{jobs[-1].name}.log" in page and page.count("<figure>") == 4
    assert "median over 2–3 seeds; band: 50–75% interval" in page


def test_an_ablation_is_labelled_and_never_passed(tmp_path):
    folder, jobs = Folder(tmp_path), plan(spec(seeds=2, grid={}))
    for job in jobs:
        fake_train(folder, job, ablation="ablation: told where the mark is seen")
        fake_points(folder, job)
        fake_exam(folder.exam(job.name), job.name, job.seed, 0.97, eye="symbolic")
    write_results(jobs, folder)
    (group,) = json.loads((tmp_path / "results.json").read_text())["groups"]
    assert (
        group["label"] == "ablation: told where the mark is seen" and group["verdict"]["status"] == "ablation"
    )
    page = (tmp_path / "report.html").read_text()
    figures = page.split("<figcaption>")[1:]
    assert figures and all(
        "told where the mark is seen" in one.partition("</figcaption>")[0] for one in figures
    )


def test_a_damaged_exam_is_told_and_the_others_are_reported(tmp_path):
    folder, jobs = Folder(tmp_path), plan(spec(seeds=3, grid={}))
    for job in jobs:
        fake_train(folder, job)
        fake_exam(folder.exam(job.name), job.name, job.seed, 0.5)
    (folder.exam(jobs[0].name) / "episodes.parquet").write_bytes(b"torn")
    (folder.exam(jobs[1].name) / "results.json").write_bytes(bytes(range(128, 256)))
    found = write_results(jobs, folder)
    assert [one["job"] for one in found["failed"]] == [jobs[0].name, jobs[1].name]
    assert all(one["reason"].startswith("damaged: ") for one in found["failed"])
    assert found["groups"][0]["examined"] == [2]


def test_nothing_examined_still_makes_a_page(tmp_path):
    folder, jobs = Folder(tmp_path), plan(spec())
    write_progress(folder, {job.name: Seen(3, True, "train: exit 2") for job in jobs})
    write_results(jobs, folder)
    assert "none of 2 runs examined" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(("n", "lowest", "held"), [(1, 0, 0.0), (2, 0, 0.5), (5, 0, 0.9375), (6, 0, 0.96875)])
def test_few_seeds_give_their_range_and_say_what_it_is_worth(n, lowest, held):
    found = median_interval(np.arange(n))
    assert found == {"low": lowest, "high": n - 1, "confidence": pytest.approx(held)}


@pytest.mark.parametrize("n", [3, 8, 10, 20])
def test_a_median_interval_holds_the_median_as_often_as_it_says(n):
    """Every pattern of values below and above the true median 0 is equally likely: count the held ones."""
    if n <= 10:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=n)))
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (2_000, n))
    values = signs * np.arange(1, n + 1)
    found = [median_interval(row) for row in values]
    share = np.mean([one["low"] <= 0 <= one["high"] for one in found])
    assert share == pytest.approx(found[0]["confidence"], abs=1e-9 if n <= 10 else 0.02)
    assert n < 6 or found[0]["confidence"] >= 0.95


def test_curves_skip_points_without_the_indicator():
    rows = pd.DataFrame({"episodes_collected": [0, 5, 5, 5], "removal_rate": [np.nan, 0.1, 0.3, 0.8]})
    (point,) = curve(rows, "removal_rate")
    assert (point["episodes"], point["median"], point["low"], point["high"], point["seeds"]) == (
        5,
        0.3,
        0.1,
        0.8,
        3,
    )


def test_a_curves_name_stands_at_its_end():
    points = [{"episodes": e, "median": m, "low": m, "high": m} for e, m in ((0, 0.1), (5, 0.3))]
    group = {"setting": "a", "body": "infant", "curves": {"removal_rate": points}}
    figure = learning([group], "removal_rate")
    assert figure is not None
    (label,) = figure.axes[0].texts
    assert label.get_text() == "a, infant" and label.xy[1] == pytest.approx(0.3)  # type: ignore[attr-defined]
    plt.close(figure)
