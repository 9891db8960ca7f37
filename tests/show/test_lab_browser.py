"""The lab in a real browser: Debian's Chromium, steered by Playwright, drawing in software."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mirrormark.show.lab.minds import Minds
from mirrormark.show.lab.session import Session

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 30_000
GREEN = """() => {
    const image = document.querySelector('#eye');
    if (!image || !image.naturalWidth) return -1;
    const canvas = document.createElement('canvas');
    canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
    const pen = canvas.getContext('2d');
    pen.drawImage(image, 0, 0);
    const p = pen.getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let i = 0; i < p.length; i += 4) if (p[i + 1] > p[i] + 60 && p[i + 1] > p[i + 2] + 60) count++;
    return count;
}"""
"""Pixels of the mark's colour in the eye's picture, as the page shows it; -1 before there is one."""


@pytest.fixture(scope="module")
def browser() -> Iterator:
    problem = None if CHROMIUM.exists() else f"{CHROMIUM} is missing (apt install chromium)"
    try:
        import viser  # noqa: F401
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as missing:
        problem = f"{missing.name} is not installed"
    if problem and os.environ.get("MIRRORMARK_REQUIRE_GL"):
        pytest.fail(f"MIRRORMARK_REQUIRE_GL is set, but: {problem}")
    if problem:
        pytest.skip(problem)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="module")
def lab(browser, out: Path) -> Iterator:
    from mirrormark.show.lab.command import free_port
    from mirrormark.show.lab.page import Page

    session = Session(Minds(preset="smoke", shipped=lambda body: None), "infant")
    page = Page(session, out, port=free_port("localhost", 8090))
    page.pace.pause(True)  # the mark is looked for where the body is now
    yield page
    page.close()


def open_tab(browser, lab, width: int, height: int, complaints: list[str]):
    """A tab that shows the eye's picture; what its console complains of is noted."""
    tab = browser.new_page(viewport={"width": width, "height": height})
    tab.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("requestfailed", lambda request: complaints.append(request.url))
    tab.on("request", lambda request: complaints.append(request.url) if is_abroad(request.url) else None)
    tab.goto(f"http://localhost:{lab.port}")
    await_script(tab, f"({GREEN})() >= 0")
    return tab


def is_abroad(url: str) -> bool:
    return not url.startswith(("http://localhost:", "ws://localhost:", "blob:", "data:"))


def in_mirror(lab, tab, local: np.ndarray) -> tuple[float, float]:
    """Where on the tab the mirror shows a point of the infant's skull."""
    worlds, camera = lab.session.world.worlds, newest(lab).camera
    skull, pane = worlds.scene.model.body("skull").id, worlds.scene.pane
    point = worlds.xpos[0, skull] + worlds.xmat[0, skull] @ local
    image = point - 2 * ((point - pane.centre) @ pane.mat[:, 2]) * pane.mat[:, 2]
    ahead = camera.look_at - camera.position
    ahead /= np.linalg.norm(ahead)
    right = np.cross(ahead, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    x, y, z = (float(axis @ (image - camera.position)) for axis in (right, np.cross(right, ahead), ahead))
    box = max((c.bounding_box() for c in tab.locator("canvas").all()), key=lambda b: b["width"])
    scale = box["height"] / 2 / np.tan(camera.fov / 2)
    return box["x"] + box["width"] / 2 + x / z * scale, box["y"] + box["height"] / 2 - y / z * scale


def wait_for(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_MS / 1000
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


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
    wait_for(lambda: not lab.pace.paused, "life did not go on")
    wait_for_text(tab, "#state", "control steps a second")
    second.context.close()
    wait_for(lambda: len(lab.server.get_clients()) == 1, "the closed tab is still there")
    before = lab.session.t_s
    wait_for(lambda: lab.session.t_s > before + 0.2, "life stopped with the tab")
    clock = "parseFloat(document.querySelector('#state').innerText.split('time')[1])"
    await_script(tab, f"{clock} > {before}")
    tab.bring_to_front()
    tab.get_by_role("button", name="Pause / go on").click()
    wait_for(lambda: lab.pace.paused, "life did not pause")
    assert lab.pace.problem is None and not complaints


def take_off(lab, tab) -> None:
    tab.get_by_role("button", name="Take it off").click()
    wait_for(lambda: not lab.session.world.mark_on, "the mark was not taken off")


def newest(lab):
    """The tab that was opened last."""
    return max(lab.server.get_clients().items())[1]


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


def stick(lab, tab) -> None:
    """Click on the brow as the mirror shows it."""
    tab.mouse.click(*in_mirror(lab, tab, np.array([0.06, 0.02, 0.045])))
    wait_for(
        lambda: lab.session.world.mark_on and lab.session.world.mark_px > 0,
        "the click stuck no mark that is seen",
    )


def choose(tab, switch: str, option: str) -> None:
    tab.get_by_role("combobox", name=switch).click()
    tab.get_by_role("option", name=option, exact=True).click()


def await_script(tab, script: str) -> None:
    """Ask again and again: by default Playwright asks when a frame is drawn, and hidden tabs draw none."""
    tab.wait_for_function(script, timeout=PATIENCE_MS, polling=100)


def wait_for_text(tab, place: str, text: str) -> None:
    found = f"document.querySelector('{place}').innerText.includes('{text}')"
    await_script(tab, found)
