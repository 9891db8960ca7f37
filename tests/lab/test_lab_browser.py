"""The lab in a real browser: a person sticks a mark on, switches the mirror off, records."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_tabs import (
    GREEN,
    await_script,
    choose,
    chromium,
    newest,
    open_lab,
    open_tab,
    stick,
    take_off,
    wait_for,
    wait_for_text,
)

from mirrormark.lab.session import Agents, Session


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="module")
def lab(browser, out: Path) -> Iterator:
    with open_lab(Session(Agents(preset="smoke", shipped=lambda body: None), "infant"), out) as page:
        yield page


@pytest.fixture(scope="module")
def complaints() -> list[str]:
    return []


@pytest.fixture(scope="module")
def tab(browser, lab, complaints: list[str]):
    return open_tab(browser, lab, 1280, 800, complaints)


def test_a_person_sticks_a_mark_on_the_face_and_switches_the_mirror_off(lab, tab, complaints):
    session = lab.session
    assert tab.evaluate(GREEN) == 0 and not session.world.mark_on
    stick(lab, tab)
    await_script(tab, f"Math.abs(({GREEN})() - {session.world.mark_px}) <= 2")
    wait_for_text(tab, "#said", "the eye sees it")
    wait_for_text(tab, "#state", "pixels of it in its eye")

    choose(tab, "Mirror", "absent")
    wait_for(lambda: session.world.mirror.kind == "absent", "the mirror was not switched off")
    await_script(tab, f"({GREEN})() === 0")
    wait_for_text(tab, "#state", "cannot see it")
    assert session.world.mark_on and session.world.mark_px == 0

    choose(tab, "Mirror", "present")
    await_script(tab, f"({GREEN})() > 0")
    take_off(lab, tab)
    tab.set_viewport_size({"width": 1000, "height": 640})
    wait_for(lambda: newest(lab).camera.image_height == 640, "the page did not follow its window")
    stick(lab, tab)
    await_script(tab, f"({GREEN})() > 0")
    take_off(lab, tab)
    assert not complaints


@pytest.mark.filterwarnings("ignore:Queued a .* on a closed connection")
def test_tabs_share_one_world_and_one_that_drops_breaks_nothing(browser, lab, tab, complaints):
    second = open_tab(browser, lab, 800, 560, complaints)
    wait_for(lambda: len(lab.server.get_clients()) == 2, "two tabs are open")
    second.get_by_role("button", name="Pause / go on").click()
    wait_for(lambda: not lab.pace.paused, "the simulation did not go on")
    wait_for_text(tab, "#state", "control steps a second")
    second.context.close()
    wait_for(lambda: len(lab.server.get_clients()) == 1, "the closed tab is still there")
    before = lab.session.t_s
    wait_for(lambda: lab.session.t_s > before + 0.2, "the simulation stopped with the tab")
    clock = "parseFloat(document.querySelector('#state').innerText.split('time')[1])"
    await_script(tab, f"{clock} > {before}")
    tab.bring_to_front()
    tab.get_by_role("button", name="Pause / go on").click()
    wait_for(lambda: lab.pace.paused, "the simulation did not pause")
    assert lab.pace.problem is None and not complaints


def test_recording_saves_a_film_and_a_table(lab, tab, complaints, out):
    tab.get_by_role("button", name="Record").click()
    wait_for(lambda: lab.session.recorder.running, "nothing is recorded")
    tab.get_by_role("button", name="One step").click()
    wait_for(lambda: len(lab.session.recorder) == 1, "no step was recorded")
    wait_for_text(tab, "#state", "recording")
    tab.get_by_role("button", name="Record").click()
    wait_for_text(tab, "#said", "Saved lab-")
    assert sorted(path.suffix for path in out.iterdir()) == [".mp4", ".parquet"]
    assert not complaints
