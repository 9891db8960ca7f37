"""Helpers for tests of the lab in a real browser: Debian's Chromium, steered by Playwright, drawing in
software."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

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


@contextmanager
def chromium() -> Iterator:
    """A browser; the test is skipped where there is none, unless there must be one."""
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
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def open_lab(session, out: Path) -> Iterator:
    """The session's page, paused: the mark is searched where the body is now."""
    from mirrormark.lab.command import free_port
    from mirrormark.lab.server import LabServer

    page = LabServer(session, out, port=free_port("localhost", 8090))
    page.pace.pause(True)
    try:
        yield page
    finally:
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


def in_mirror(lab, tab, local: np.ndarray, mirrored: bool = True) -> tuple[float, float]:
    """Where on the tab the mirror shows a point of the infant's skull; or where it is seen directly."""
    envs, camera = lab.session.world.envs, newest(lab).camera
    skull, pane = envs.scene.model.body("skull").id, envs.scene.pane
    point = envs.xpos[0, skull] + envs.xmat[0, skull] @ local
    through = 2 * ((point - pane.centre) @ pane.mat[:, 2]) * pane.mat[:, 2]
    image = point - through if mirrored else point
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


def take_off(lab, tab) -> None:
    tab.get_by_role("button", name="Take it off").click()
    wait_for(lambda: not lab.session.world.mark_on, "the mark was not taken off")


def newest(lab):
    """The tab that was opened last."""
    return max(lab.server.get_clients().items())[1]


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


def set_number(tab, label: str, value: float) -> None:
    """Type a number into the field beside a slider, or into a field of its own."""
    row = f"//*[normalize-space(text())='{label}']/ancestor::*[.//input[@type='text']][1]"
    field = tab.locator(f"xpath={row}//input[@type='text']").first
    field.fill(str(value))
    field.press("Enter")
    field.blur()
