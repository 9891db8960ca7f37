"""The report of made-up exams; opened in a real browser where there is one."""

import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pandas as pd
import pytest

from mirrormark.exam import tables
from mirrormark.exam.results import load
from mirrormark.report import figures, film, pictures
from mirrormark.report.commands import report
from mirrormark.report.exam_data import Exam
from mirrormark.report.page import interval, p_value, percent, points, render
from mirrormark.report.report import _films, _null, headline
from mirrormark.report.svg import Plot, round_numbers


@pytest.fixture(scope="module")
def folder(save_exam, tmp_path_factory):
    folder = save_exam(tmp_path_factory.mktemp("exam"))
    report(folder)
    return folder


@pytest.fixture(scope="module")
def exam(folder) -> Exam:
    return Exam(folder)


@pytest.fixture(scope="module")
def html(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def words_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_report_needs_no_network(html):
    assert "<script src" not in html and "fetch(" not in html
    assert re.findall(r'(?:src|href|poster)="(?!data:|#)([^"]+)"', html) == []
    assert not re.search(r"url\((?!#|\"?data:)", html) and "@import" not in html


def test_ids_are_unique_and_links_lead_somewhere(html):
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)) > 8
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)


def test_the_finding_comes_first_then_a_film_and_four_bars(html, exam):
    order = [html.index(part) for part in ("<h1>", "<video", "mirror and mark", "<nav", "<h2")]
    assert order == sorted(order)
    opening = html[html.index('class="opening"') : html.index("<nav")]
    assert "autoplay" in opening and "half speed" in opening and 'class="plot"' in opening
    for bar in ("mirror and mark", "no mirror", "sham mark", "motor babbling"):
        assert bar in opening
    assert "yoked" not in opening
    rate = exam.results["conditions"]["mirror"]
    assert f"took the mark off in {percent(rate['rate'])} of 120 runs" in headline(exam.results)
    assert words_of(html).count("n=120 runs, 3 training seeds") >= 2


def test_each_training_seed_is_a_dot_and_only_then_there_is_a_legend_of_dots(html, save_exam, tmp_path):
    opening = html[: html.index("<nav")]
    assert opening.count('class="dot seed"') == 3 * 3  # chance has no training seed
    assert "Dots: training seeds" in opening
    one = save_exam(tmp_path / "exam", seeds=(0,), runs=20, chance_runs=20)
    report(one)
    text = (one / "report.html").read_text(encoding="utf-8")
    assert 'class="dot seed"' not in text and "Dots: training seeds" not in text


def test_a_short_exam_has_its_finding_too(exam):
    results = exam.results | {"conditions": {"mirror": exam.results["conditions"]["mirror"]}}
    assert "an unseen place of the same kind was touched" in headline(results)
    assert headline(results).endswith(".") and "no difference" not in headline(results)
    unclear = results | {"comparisons": [c | {"interval": [-0.1, 0.4]} for c in results["comparisons"]]}
    assert "no difference that these runs can show" in headline(unclear)


def test_words_are_explained(html):
    words = html[html.index("<dl>") : html.index("</dl>")]
    for word in ("tokenizer", "token", "self-prior", "G,", "nats", "babbling", "flexor", "yoked", "Holm"):
        assert word in words
    assert words_of(html).count("are those of the paper") == 1
    assert "mirrormark exam &#39;runs/a b&#39;" in html


def test_every_picture_and_plot_says_what_it_shows(html):
    for tag in re.findall(r"<img [^>]*>", html):
        assert re.search(r'alt="[^"]{5,}"', tag), tag[-200:]
    for tag in re.findall(r'<svg [^>]*role="img"[^>]*>|<video [^>]*>', html):
        assert re.search(r'aria-label="[^"]{10,}"', tag), tag[-200:]
    assert html.count('role="img"') == 9


def test_a_dot_names_its_run_and_leads_to_its_film(html):
    assert re.search(r"<title>world 3, training seed 0: [^<]+ before, [^<]+ after</title>", html)
    clips = set(re.findall(r'<a href="#(clip-\w+)">', html))
    assert clips and clips <= set(re.findall(r'<figure id="(clip-\w+)">', html))


def test_plots_fit_any_width(html):
    for attributes in re.findall(r'<svg ([^>]*role="img"[^>]*)>', html):
        assert 'width="100%"' in attributes and "viewBox" not in attributes
    for value in re.findall(r'<(?:circle|text)[^>]* c?x="([^"]+)"', html):
        assert value == "0" or value.endswith("%")


def test_before_and_after_are_means_in_both_plots(exam, html):
    found = pd.concat([one.pairs for one in exam.pairs().values()])
    change = float((found["after"] - found["before"]).mean())
    assert f"<title>mean, removed: {f'{change:.2f}'.replace('-', '−')} nats</title>" in html
    kept = exam.results["free_energy"]["matched_control"]
    assert f"<title>mean, not removed: {f'{kept:.2f}'.replace('-', '−')} nats</title>" in html
    assert "means, in both plots" in html


def test_first_touch_is_also_given_without_hands_that_start_at_the_mark(save_exam, tmp_path):
    folder = save_exam(tmp_path / "exam", seeds=(0,), runs=20, chance_runs=20)
    steps = pd.read_parquet(folder / "steps.parquet")
    steps.loc[steps["t_s"] == 0, ["distance_m", "yoked_distance_m"]] = 0.1
    steps.loc[(steps["t_s"] == 0) & (steps["exam_seed"] < 5), "distance_m"] = 0.01
    tables.write(steps, folder / "steps.parquet", tables.STEPS)
    exam = Exam(folder)
    every, away = exam.first_touch("mirror"), exam.first_touch("mirror", away=True)
    assert every is not None and away is not None and (every.n, away.n) == (20, 15)
    assert exam.started_at("distance_m") == 0.25 and exam.started_at("yoked_distance_m") == 0
    report(folder)
    text = words_of((folder / "report.html").read_text(encoding="utf-8"))
    assert "In 25% of the runs the nearer hand starts within 2 cm" in text and "of 15 runs" in text


def test_null_results_are_called_null():
    probes = {
        "proprioception_from_vision_rad": {"encoder only": 0.3, "self-prior": 0.2},
        "vision_from_proprioception_rms": {"encoder only": 0.0516, "self-prior": 0.0515},
    }
    assert _null(probes) == ["vision from joint angles"] and _null(None) == []


def test_erasure_gives_both_percentages(html):
    words = words_of(html)
    assert "through the self-prior 10% 83%" in words and "reconstructed 60%" in words
    assert "whether a patch that is no mark would be lost" in words


def test_what_the_world_model_imagines_is_not_called_a_removal(html):
    assert "What it imagines of the same actions" in html and "keep and lose marks imperfectly" in html


def test_films_are_of_runs_whose_mark_is_seen_at_first(save_exam, tmp_path):
    """Worlds 3 (median), 5 (best) and 9 (failed) are filmed."""
    folder = save_exam(tmp_path / "exam", seeds=(0,), runs=20, chance_runs=20)
    clips, missing = _films(Exam(folder), None)
    assert [clip["id"] for clip in clips] == ["clip-median", "clip-best", "clip-failed"] and missing == ""
    steps = pd.read_parquet(folder / "steps.parquet")
    first = (steps["condition"] == "mirror") & (steps["t_s"] == 0)
    steps.loc[first & steps["exam_seed"].isin([3, 7, 9]), "mark_px"] = 0.0
    steps.loc[first & (steps["exam_seed"] == 9), "mark_in_view"] = 0.0
    tables.write(steps, folder / "steps.parquet", tables.STEPS)
    clips, missing = _films(Exam(folder), None)
    assert [clip["id"] for clip in clips] == ["clip-best", "clip-failed"]
    assert "world 3 (median run: covered by a hand or arm) and world 9 (failed run: out of view)." in missing
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r'\bid="([^"]+)"', text))


def test_removals_are_marked_where_the_distance_goes_on(exam):
    removed = exam.episodes.loc[exam.episodes["condition"] == "mirror", "removed_s"].dropna()
    assert figures.distance(exam).count("mark off at") == len(removed)


def test_the_page_is_well_formed(html):
    void = {"meta", "br", "img", "hr", "line", "circle", "polyline", "polygon"}

    class Checker(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag, attrs):
            if tag not in void:
                self.open.append(tag)

        def handle_endtag(self, tag):
            if tag not in void:
                assert self.open.pop() == tag

    checker = Checker()
    checker.feed(html)
    assert checker.open == []


def test_an_ablation_says_so_everywhere(save_exam, tmp_path, capsys):
    folder = save_exam(tmp_path / "exam", eye="symbolic", seeds=(0,), runs=20, chance_runs=20)
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    words = "ablation: told where the mark is seen"
    assert words in capsys.readouterr().out
    assert 'class="verdict ablation"' in text and 'class="verdict passed"' not in text
    assert "No probes" in text and "One training seed only" in text
    captions = re.findall(r"<figcaption>.*?</figcaption>", text, re.DOTALL)
    assert len(captions) > 5 and all(words in caption for caption in captions)
    run = Exam(folder).recorded[0]
    labelled, plain = (film.frames(run, (0, 100), label)[0] for label in (words, None))
    assert np.abs(labelled[: film._TOP_PX].astype(int) - plain[: film._TOP_PX]).max() > 60


def test_development_seeds_are_labelled_and_never_passed(save_exam, tmp_path, capsys):
    folder = save_exam(tmp_path / "exam", first_exam_seed=1000, seeds=(0,), runs=20, chance_runs=20)
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    words = "development seeds: used for choosing, not for reporting"
    assert words in capsys.readouterr().out
    assert 'class="verdict passed"' not in text and "Passed:" not in text
    captions = re.findall(r"<figcaption>.*?</figcaption>", text, re.DOTALL)
    assert len(captions) > 5 and all(words in caption for caption in captions)


def test_the_method_gives_the_numbers_of_the_examined_world(exam, html):
    text = words_of(html)
    assert f"for {exam.results['hold_sim_steps']} physics steps" in text
    assert "within 2 cm of it" in text and "100 control steps (5 s)" in text
    assert "In G the joint angles' tokens count 0.05, all others 1." in text.replace("&#39;", "'")


def test_the_agent_that_was_given_first_is_shown(save_exam, tmp_path):
    """Also where another comes first in the alphabet."""
    folder = save_exam(tmp_path / "exam", seeds=(0,), runs=20, chance_runs=20)
    shutil.copytree(folder / "parts" / "seed-0@last", folder / "parts" / "aaa@last")
    np.savez(folder / "parts" / "aaa@last" / "recording.npz", label=np.array(["wrong"]))
    assert [run.label for run in Exam(folder).recorded] == ["median", "best", "failed"]


def test_an_exam_without_removal_training_or_film_is_reported(save_exam, tmp_path):
    folder = save_exam(tmp_path / "exam", rates={"mirror": 0.0, "absent": 0.0}, seeds=(0,), runs=5)
    shutil.rmtree(folder / "parts")
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "nothing to compare" in text and "<video" not in text and "not run" in text
    assert "</i>a removal<" not in text  # no legend of what is not drawn


@pytest.mark.parametrize("program", ["/nonexistent/ffmpeg", "/bin/false"])
def test_without_ffmpeg_there_is_a_report_that_says_so(save_exam, tmp_path, monkeypatch, program):
    folder = save_exam(tmp_path / "exam", rates={"mirror": 0.0, "absent": 0.0}, seeds=(0,), runs=5)
    (folder / "film-median.mp4").write_bytes(b"of an earlier report")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", program)
    report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "No film: ffmpeg" in text and "<video" not in text and not (folder / "film-median.mp4").exists()


def test_few_runs_are_counted_as_few(save_exam, tmp_path):
    """One removal: no spread; one evaluation: still a dot."""
    folder = save_exam(tmp_path / "exam", rates={"mirror": 0.3, "absent": 0.0}, seeds=(0,), runs=5)
    found = load(folder / "results.json")
    assert found["free_energy"]["pairs"] == 1 and found["free_energy"]["before_sd"] is None
    pd.read_parquet(folder / "training.parquet").iloc[:1].to_parquet(folder / "training.parquet")
    report(folder)
    text = words_of((folder / "report.html").read_text(encoding="utf-8"))
    assert "after (1 run)" in text and "1 evaluation, n=80 runs each" in text and "n=1 pair;" in text


def test_what_is_not_an_exam_is_named(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        report(tmp_path)


def test_a_film_is_half_as_fast_and_ends_a_second_after_removal(folder, exam):
    reader = imageio.get_reader(folder / "film-median.mp4")
    assert reader.get_meta_data()["fps"] == 10
    shown = 24 + 20 + 1 + film._HOLD_FRAMES  # removed at 1.2 s
    assert len(imageio.mimread(folder / "film-median.mp4", memtest=False)) == shown
    run = exam.recorded[0]
    drawn = film.frames(run, film.g_limits(exam.recorded))
    assert len(drawn) == 45 and len(film.frames(exam.recorded[2], (0, 1))) == 100
    edge = [frame[-2, 200].astype(int) for frame in drawn]
    red = [step for step, colour in enumerate(edge) if colour[0] > 200 and colour[1] < 120]
    assert red == list(range(24, 24 + film._RED_FRAMES))


def test_nothing_lies_over_g_in_a_film(exam):
    """Between two frames only the cursor moves there."""
    first, later = (film.frames(exam.recorded[0], (60, 100))[k].astype(int) for k in (3, 40))
    curve = slice(film._TOP_PX, film._TOP_PX + film._CURVE_PX)
    changed = np.flatnonzero(np.abs(first[curve] - later[curve]).max(2).any(0))
    assert len(changed) == 2


def test_curves_of_g_share_one_scale(exam):
    low, high = film.g_limits(exam.recorded)
    assert low < min(run.g[:10].min() for run in exam.recorded) < high


def test_moments_of_a_strip_hold_the_removal():
    assert 24 in pictures.moments(100, 24)
    assert pictures.moments(100, None)[0] == 0 and pictures.moments(100, None)[-1] == 99


def test_numbers_read_the_same_everywhere():
    assert percent(0.405) == "40%" and points(-0.123) == "−12"
    assert interval((0.409275, 0.590725)) == "40–60%"  # outward, as in the verdict
    assert interval((-0.061, 0.7), "points") == "−7 to +70"
    assert interval((None, 2.5), "nats") == "−∞ to 2.50"
    assert p_value(None) == "no test possible" and p_value(0.031) == "p=0.031" and p_value(3e-7) == "p=3e-07"


def test_axes_have_round_numbers():
    assert round_numbers(0, 5, 5) == [0, 1, 2, 3, 4, 5] and round_numbers(-14.8, 0.5, 4) == [-10, -5, 0]


def test_markup_in_names_is_escaped():
    plot = Plot("a <b>", (0, 1), (0, 1))
    plot.dot(0.5, 0.5, "exam", "<script>")
    assert "<script>" not in plot.html() and "<b>" not in plot.html()
    assert "<i>" not in render("base.html", title="<i>", body="<i>")


@pytest.fixture(scope="module")
def browser():
    chromium = Path("/usr/bin/chromium")
    problem = None if chromium.exists() else "there is no Chromium (apt install chromium)"
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        problem = "playwright is not installed"
    if problem and os.environ.get("MIRRORMARK_REQUIRE_GL"):
        pytest.fail(f"MIRRORMARK_REQUIRE_GL is set, but {problem}")
    if problem:
        pytest.skip(problem)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(chromium), args=["--no-sandbox"])
        yield started
        started.close()


WIDER = """() => [...document.querySelectorAll('body *')].filter(e => {
    const r = e.getBoundingClientRect();
    return r.width && (r.right > innerWidth + 1 || r.left < -1);
}).map(e => e.outerHTML.slice(0, 99))"""


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_wider_than_the_page(folder, browser, width):
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto((folder / "report.html").as_uri())
    assert tab.evaluate(WIDER) == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    tab.close()


def test_without_scripts_everything_but_playing_by_a_dot_is_there(folder, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((folder / "report.html").as_uri())
    shown = tab.locator("svg[role=img], video, .rows img, .strip img, table, h1")
    assert shown.count() > 25 and all(one.is_visible() for one in shown.all())
    context.close()


def test_a_dot_plays_the_film_of_its_run(folder, browser):
    tab = browser.new_page()
    tab.goto((folder / "report.html").as_uri())
    dot = tab.locator("a[href^='#clip-']").first
    film = f"document.querySelector('{dot.get_attribute('href')} video')"
    paused = f"{film}.paused"
    assert tab.evaluate(f"{film}.pause(), {paused}")
    dot.click()
    tab.wait_for_function(f"!{paused}", timeout=20_000)
    tab.close()


def test_the_page_follows_light_and_dark(folder, browser):
    grounds, ink = [], []
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto((folder / "report.html").as_uri())
        grounds.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        ink.append(tab.evaluate("getComputedStyle(document.querySelector('.plot text.name')).fill"))
        tab.close()
    assert grounds[0] != grounds[1] and ink[0] != ink[1]
