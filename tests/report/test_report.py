"""Figures and report of made-up exams; the report is looked at in a real browser where there is one."""

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import imageio.v2 as imageio
import numpy as np
import pytest

from mirrormark.exam import history, tables
from mirrormark.exam.results import load
from mirrormark.report import figures, figures_exam, film, style
from mirrormark.report.commands import report
from mirrormark.report.figures_time import _moments
from mirrormark.report.page import method
from mirrormark.report.report import _which_runs


@pytest.fixture(scope="module")
def exam(save_exam, tmp_path_factory):
    folder = save_exam(tmp_path_factory.mktemp("exam"))
    report(folder)
    return folder


@pytest.fixture(scope="module")
def html(exam):
    return (exam / "report.html").read_text(encoding="utf-8")


ALL = {
    *("removal", "fig3a", "fig3b", "fig3c", "fig4a", "fig4b", "distance", "first-touch", "failures"),
    *("fig5-samples", "fig5-erasure", "fig5-crossing", "fig5-dream"),
}


def test_every_figure_is_drawn_as_png_and_svg(exam):
    found = {path.name for path in (exam / "figures").iterdir()}
    assert found == {f"{name}.{kind}" for name in ALL for kind in ("png", "svg")}


def test_every_caption_names_body_and_tone_and_most_n(exam):
    for caption in figures.draw(exam):
        assert "infant, flexor tone" in caption.text
        assert "n=" in caption.text or "One run" in caption.text or caption.name == "fig5-samples"


def test_figures_are_the_same_bytes_again(exam):
    before = (exam / "figures" / "removal.svg").read_bytes()
    figures.draw(exam)
    assert (exam / "figures" / "removal.svg").read_bytes() == before


def test_the_report_needs_no_network_and_no_script(html):
    assert "<script" not in html
    outside = re.findall(r'(?:src|href|xlink:href)="(?!data:|#)([^"]+)"', html)
    assert outside == []
    assert not re.search(r"url\((?!#|\"?data:)", html) and "@import" not in html


def test_ids_of_figures_do_not_collide(html):
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)) > 100
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)


def test_the_verdict_comes_first(html):
    assert html.index('class="verdict passed"') < html.index("<h2>")
    assert "n=120 runs, 3 training seeds" in html
    assert "mirrormark exam &#x27;runs/a b&#x27;" in html


def test_words_are_explained_before_they_are_used(html):
    words = html[html.index("<dl>") : html.index("</dl>")]
    assert html.index("</dl>") < html.index("<h2>") and html.count("are those of the paper") == 1
    for word in ("tokenizer", "token", "self-prior", "G,", "nats", "babbling", "flexor", "yoked", "Holm"):
        assert word in words


def test_the_dream_is_not_called_a_removal(html):
    assert "What it dreams of the same actions" in html and "Dreams keep and lose marks imperfectly" in html
    assert "dream of removal" not in html


def test_runs_that_begin_without_a_mark_in_sight_say_why(exam, html):
    """Worlds 3, 5 and 9 are filmed; in two of them the mark is not seen at first."""
    results, steps = load(exam / "results.json"), tables.read(exam / "steps.parquet", tables.STEPS)
    assert figures.unseen_at_first(exam, results, [3, 5, 9]) == "" and "The mark is on, but" not in html
    first = (steps["condition"] == "mirror") & (steps["run"] == "seed-0") & (steps["t_s"] == 0)
    steps.loc[first & steps["exam_seed"].isin([3, 5, 7]), "mark_px"] = 0.0
    steps.loc[first & (steps["exam_seed"] == 5), "mark_in_view"] = 0.0
    there = exam.parent / "unseen"
    there.mkdir()
    tables.write(steps, there / "steps.parquet", tables.STEPS)
    told = figures.unseen_at_first(there, results, [3, 5, 9])
    assert "world 3 (covered by a hand or arm), world 5 (out of view)." in told and "world 7" not in told


def test_removals_are_marked_where_the_distance_goes_on(exam):
    episodes = tables.read(exam / "episodes.parquet", tables.EPISODES)
    drawn = figures_exam.distance(episodes, tables.read(exam / "steps.parquet", tables.STEPS))
    removed = episodes.loc[episodes["condition"] == "mirror", "removed_s"].dropna()
    ticks = drawn.axes[0].collections[-1].get_segments()  # pyright: ignore[reportAttributeAccessIssue]
    assert sorted(tick[0][0] for tick in ticks) == sorted(removed)


def test_curves_of_g_in_a_film_share_one_scale():
    g = np.array([[10.0, 60.0], [10.0, 30.0], [np.nan, np.nan]])
    low, high = film._limits(g)
    assert low < 10 and high > 60 and film._limits(g[2:]) is None
    steep, flat = (film._curve(curve, np.nan, (low, high))[0].astype(int) for curve in (g[0], g[1]))
    blue = [np.flatnonzero((picture[..., 2] > picture[..., 0] + 40).any(1)) for picture in (steep, flat)]
    assert np.ptp(blue[0]) > 2 * np.ptp(blue[1])


def test_the_page_is_well_formed(html):
    void = {"meta", "br", "img", "hr"}

    class Checker(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag, attrs):
            if tag not in void:
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    checker = Checker()
    checker.feed(html)
    assert checker.open == []


def test_figures_take_the_pages_colour(html):
    assert style.INK not in html.split("</style>")[1] and "currentColor" in html


def test_an_ablation_says_so_everywhere(save_exam, tmp_path, capsys):
    folder = save_exam(tmp_path / "exam", eye="symbolic", seeds=(0,), runs=20, chance_runs=20)
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    words = "ablation: told where the mark is seen"
    assert words in capsys.readouterr().out and text.count(words) >= 5
    assert 'class="verdict ablation"' in text and 'class="verdict passed"' not in text
    assert "No probes" in text and "One training seed only" in text
    captions = re.findall(r"<figcaption>.*?</figcaption>", text)
    assert len(captions) > 5 and all(words in caption for caption in captions)
    for svg in (folder / "figures").glob("*.svg"):
        assert style.REMOVAL in svg.read_text(encoding="utf-8"), svg.name
    film.write(figures.stored(folder, load(folder / "results.json"), "recording.npz"), tmp_path / "plain.mp4")
    labelled, plain = (
        imageio.get_reader(path).get_data(0) for path in (folder / "film.mp4", tmp_path / "plain.mp4")
    )
    assert labelled.shape[0] == plain.shape[0] + 24  # a banner in every frame


def test_development_seeds_are_labelled_and_never_passed(save_exam, tmp_path, capsys):
    folder = save_exam(tmp_path / "exam", first_exam_seed=1000, seeds=(0,), runs=20, chance_runs=20)
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    words = "development seeds: used for choosing, not for reporting"
    assert words in capsys.readouterr().out and text.count(words) >= 10
    assert 'class="verdict passed"' not in text and "Passed:" not in text
    assert all(words in caption for caption in re.findall(r"<figcaption>.*?</figcaption>", text))


def test_the_method_tells_the_numbers_of_the_examined_world(exam):
    told = " ".join(method(load(exam / "results.json") | {"reach_m": 0.035, "hold_sim_steps": 20}).split())
    assert "within 3.5 cm of it for 20 physics steps (0.2 s) in a row" in told
    assert "100 control steps (5 s)" in told and "on the body (chest or head)" in told


def test_a_weighed_drive_is_told(html: str):
    assert "In G the joint angles' tokens count 0.05, all others 1." in html


def test_one_agent_is_shown_everywhere(save_exam, tmp_path):
    """The first that was given, also where another comes first in the alphabet."""
    folder = save_exam(tmp_path / "exam", seeds=(0,), runs=20, chance_runs=20)
    shutil.copytree(folder / "parts" / "seed-0@last", folder / "parts" / "aaa@last")
    np.savez(folder / "parts" / "aaa@last" / "recording.npz", label=np.array(["wrong"]))
    found = figures.stored(folder, load(folder / "results.json"), "recording.npz")
    assert found["label"].tolist() == ["median", "best", "failed"]


def test_an_exam_without_removal_training_or_film_is_reported(save_exam, tmp_path):
    folder = save_exam(tmp_path / "exam", rates={"mirror": 0.0, "absent": 0.0}, seeds=(0,), runs=5)
    shutil.rmtree(folder / "parts")
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "nothing to compare" in text and "<video" not in text and "not run" in text


@pytest.mark.parametrize("program", ["/nonexistent/ffmpeg", "/bin/false"])
def test_without_ffmpeg_there_is_a_report_that_says_so(save_exam, tmp_path, monkeypatch, program):
    folder = save_exam(tmp_path / "exam", rates={"mirror": 0.0, "absent": 0.0}, seeds=(0,), runs=5)
    (folder / "film.mp4").write_bytes(b"of an earlier report")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", program)
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "No film: ffmpeg" in text and "<video" not in text and not (folder / "film.mp4").exists()


def test_few_runs_are_told_as_few(save_exam, tmp_path):
    """One removal: no spread; two recorded runs: no median; one exam point: still a dot."""
    assert _which_runs(["best", "failed"]) == "The best and a failed run"
    assert _which_runs(["median", "best", "failed"]) == "The median, the best and a failed run"
    folder = save_exam(tmp_path / "exam", rates={"mirror": 0.3, "absent": 0.0}, seeds=(0,), runs=5)
    found = load(folder / "results.json")
    assert found["free_energy"]["pairs"] == 1 and found["free_energy"]["before_sd"] is None
    training = tables.read(folder / "training.parquet", history.TRAINING).iloc[:1]
    tables.write(training, folder / "training.parquet", history.TRAINING)
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "after (1 run)" in text and "1 exam point, n=80 runs each" in text and "n=1 pair;" in text


def test_what_is_not_an_exam_is_named(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        report(tmp_path)


def test_the_film_plays(exam):
    frames = imageio.mimread(exam / "film.mp4", memtest=False)
    assert len(frames) == 112 and frames[0].shape[1] == 720
    assert np.abs(frames[0].astype(int) - frames[50].astype(int)).mean() > 1


def test_moments_of_a_strip_hold_the_removal(exam):
    stored = figures.stored(exam, load(exam / "results.json"), "recording.npz")
    assert film._column(stored, 2).shape[0] == 100
    assert 24 in _moments(100, 24) and _moments(100, None)[0] == 0 and _moments(100, None)[-1] == 99


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_fits_a_screen_and_a_phone(exam, width, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None and os.environ.get("MIRRORMARK_REQUIRE_GL"):
        pytest.fail("MIRRORMARK_REQUIRE_GL is set, but there is no Chromium")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    shot = tmp_path / "page.png"
    subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        + [f"--window-size={width},1600", f"--screenshot={shot}", (exam / "report.html").as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    picture = imageio.imread(shot)[..., :3].astype(int)
    assert picture.shape[1] == width and picture.std() > 10
    edge = picture[:, -3:]  # nothing is cut off or pushed out at the right
    assert np.abs(edge - edge[0, 0]).max() < 12
