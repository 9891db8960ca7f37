"""Every switch of the lab's page, turned in a real browser; and who may not turn them."""

import asyncio
import contextlib
import http.client
from collections.abc import Iterator

import numpy as np
import pytest
from lab_tabs import (
    GREEN,
    await_script,
    choose,
    chromium,
    in_mirror,
    newest,
    open_lab,
    open_tab,
    set_number,
    stick,
    take_off,
    wait_for,
    wait_for_text,
)

from mirrormark.exam import candidates
from mirrormark.lab.session import POLICY, UNTRAINED, Agents, Session
from mirrormark.training.weights import describe, save_snapshot

viser_messages = pytest.importorskip("viser._messages", reason="the lab's page needs viser")
GuiUpdateMessage = viser_messages.GuiUpdateMessage
GROWN = "snapshots@step-1"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("lab")
    candidate = candidates.untrained("smoke")
    metadata = describe(candidate.agent, candidate.setup, seed=3)
    grown = save_snapshot(folder / "snapshots", "step-1", candidate.agent, metadata)
    agents = Agents([grown], preset="smoke", shipped=lambda body: None)
    with open_lab(Session(agents, "infant"), folder) as page:
        yield page


@pytest.fixture(scope="module")
def complaints() -> list[str]:
    return []


@pytest.fixture(scope="module")
def tab(lab, complaints: list[str]) -> Iterator:
    with chromium() as browser:
        yield open_tab(browser, lab, 1280, 1000, complaints)


@pytest.fixture(autouse=True)
def _no_complaints(complaints: list[str]) -> Iterator:
    yield
    assert not complaints


def is_now(lab, body: str, agent: str) -> bool:
    """Asked while nothing is being exchanged."""
    with lab.session.lock:
        return (lab.session.body, lab.session.agent_name) == (body, agent)


def one_step(lab, tab, times: int = 1) -> None:
    for _ in range(times):
        before = lab.session.t_s
        tab.get_by_role("button", name="One step").click()
        wait_for(lambda before=before: lab.session.t_s > before, "no step was made")


def test_body_and_agent(lab, tab):
    session = lab.session
    assert session.agent_name == GROWN
    choose(tab, "Agent", UNTRAINED)
    wait_for(lambda: session.agent_name == UNTRAINED, "the agent was not exchanged")
    wait_for_text(tab, "#state", "it has learned nothing")
    choose(tab, "Agent", GROWN)
    wait_for(lambda: session.agent_name == GROWN, "the agent was not exchanged back")
    choose(tab, "Body", "arm")
    wait_for(lambda: session.body == "arm", "the body was not exchanged")
    wait_for_text(tab, "#state", "no trained agent is shipped for the arm")
    one_step(lab, tab)
    choose(tab, "Body", "infant")
    wait_for(lambda: is_now(lab, "infant", GROWN), "the infant did not come back")


def test_a_covered_mirror_hides_the_mark(lab, tab):
    stick(lab, tab)
    choose(tab, "Mirror", "covered")
    await_script(tab, f"({GREEN})() === 0")
    wait_for_text(tab, "#state", "cannot see it")
    choose(tab, "Mirror", "present")
    await_script(tab, f"({GREEN})() > 0")
    take_off(lab, tab)


def test_a_delayed_mirror_shows_the_mark_later(lab, tab):
    choose(tab, "Mirror", "delayed")
    wait_for(lambda: lab.session.world.mirror.kind == "delayed", "the mirror is not delayed")
    set_number(tab, "Delay (s)", 0.1)
    wait_for(lambda: lab.session.world.mirror.delay_control_steps == 2, "the delay was not set")
    one_step(lab, tab, 3)  # before its first frame there is no past to show
    tab.mouse.click(*in_mirror(lab, tab, np.array([0.06, 0.02, 0.045])))
    wait_for_text(tab, "#said", "the mirror will show it in 0.1 s")
    assert tab.evaluate(GREEN) == 0
    one_step(lab, tab, 2)
    await_script(tab, f"({GREEN})() > 0")
    take_off(lab, tab)
    choose(tab, "Mirror", "present")


@pytest.mark.parametrize(
    ("label", "value", "field", "expected"),
    [
        ("Distance (m)", 0.25, "distance_m", 0.25),
        ("Turn (°)", 10, "yaw_rad", np.radians(10)),
        ("Tilt (°)", -10, "pitch_rad", np.radians(-10)),
    ],
)
def test_the_mirror_is_moved(lab, tab, label: str, value: float, field: str, expected: float):
    before = getattr(lab.session.world.mirror, field)
    eye = tab.locator("#eye").get_attribute("src")
    set_number(tab, label, value)
    wait_for(
        lambda: getattr(lab.session.world.mirror, field) == pytest.approx(expected), f"{label} was not set"
    )
    await_script(tab, f"document.querySelector('#eye').src !== {eye!r}")
    set_number(tab, label, round(float(np.degrees(before)) if "rad" in field else before, 3))
    wait_for(lambda: getattr(lab.session.world.mirror, field) == pytest.approx(before), f"{label} stayed")


def test_who_moves_it(lab, tab):
    choose(tab, "Moved by", "held motor babbling")
    wait_for(lambda: lab.session.mover == "held motor babbling", "motor babbling does not move it")
    choose(tab, "Moved by", POLICY)
    wait_for(lambda: lab.session.mover == POLICY, "the policy does not move it")


def test_time_stands_still_goes_a_step_and_goes_faster(lab, tab):
    assert lab.pace.paused
    before = lab.session.t_s
    one_step(lab, tab)
    assert lab.session.t_s == pytest.approx(before + 0.05)
    set_number(tab, "Speed (×)", 2.5)
    wait_for(lambda: lab.pace.speed == 2.5, "the speed was not set")
    tab.get_by_role("button", name="Pause / go on").click()
    wait_for(lambda: lab.session.t_s > before + 0.3, "the simulation did not go on")
    tab.get_by_role("button", name="Pause / go on").click()
    wait_for(lambda: lab.pace.paused, "the simulation did not pause")
    set_number(tab, "Speed (×)", 1)


def test_the_views(lab, tab):
    def position():
        return newest(lab).camera.position

    for view in ("Side", "Its eye", "Shoulder"):
        before = position().copy()
        tab.get_by_role("button", name=view, exact=True).click()
        wait_for(lambda before=before: np.linalg.norm(position() - before) > 0.1, f"no view: {view}")


@pytest.mark.parametrize(("button", "surface"), [("Mark its forehead", 0), ("Mark its chest", 1)])
def test_a_button_puts_a_mark_where_it_is_seen(lab, tab, button: str, surface: int):
    tab.get_by_role("button", name=button).click()
    wait_for(lambda: lab.session.world.mark_px > 0, "no mark is seen")
    assert lab.session.world.envs.mark_state.surface[0] == surface
    await_script(tab, f"({GREEN})() > 0")
    take_off(lab, tab)


@pytest.mark.parametrize(
    ("switch", "value"), [("speed", 0.0), ("distance", 1e308), ("seed", 1e20), ("yaw", -1e9)]
)
def test_a_number_that_only_a_program_sends_is_put_back(lab, tab, switch: str, value: float):
    """As if a tab had sent it: its limits are checked in the browser only by the browser."""
    handle = getattr(lab.panel.controls, switch)
    good, client = handle.value, newest(lab)
    message = GuiUpdateMessage(handle._impl.uuid, {"value": value})
    asyncio.run_coroutine_threadsafe(
        lab.server.gui._handle_gui_updates(client.client_id, message), lab.server._event_loop
    ).result(20)
    wait_for(lambda: handle.value == good, f"{switch} stayed at {value:g}")
    wait_for_text(tab, "#said", "is out of range")
    one_step(lab, tab)
    assert lab.pace.is_alive() and lab.pictures.is_alive() and lab._drawer.is_alive()
    assert lab.pace.problem is None


def test_a_seed_and_a_new_start(lab, tab):
    set_number(tab, "Seed", 7)
    tab.get_by_role("button", name="Start anew").click()
    wait_for(lambda: lab.session.seed == 7 and lab.session.t_s == 0, "no new start")
    wait_for_text(tab, "#said", "A new posture, of seed 7")
    posture = lab.session.world.envs.xpos.copy()
    tab.get_by_role("button", name="Start anew").click()
    wait_for_text(tab, "#said", "A new posture, of seed 8")
    set_number(tab, "Seed", 7)
    tab.get_by_role("button", name="Start anew").click()
    wait_for_text(tab, "#said", "A new posture, of seed 7")
    assert np.array_equal(lab.session.world.envs.xpos, posture)


def test_a_mark_at_the_back_of_the_head_is_said_to_be_unseen(lab, tab):
    """From the first view the back of its head is in front."""
    x, y = in_mirror(lab, tab, np.array([-0.09, 0.0, 0.03]), mirrored=False)
    tab.mouse.click(x, y)
    wait_for(lambda: lab.session.world.mark_on, "the click stuck no mark")
    wait_for_text(tab, "#said", "the eye cannot see it")
    wait_for_text(tab, "#state", "its eye cannot see it")
    assert lab.session.world.mark_px == 0 and tab.evaluate(GREEN) == 0
    take_off(lab, tab)


def test_a_click_beside_the_body_says_so(lab, tab):
    tab.mouse.click(40, 900)
    wait_for_text(tab, "#said", "Nothing there")
    assert not lab.session.world.mark_on


@pytest.mark.parametrize(("origin", "allowed"), [(None, True), ("own", True), ("http://evil.example", False)])
def test_only_its_own_pages_may_talk_to_the_lab(lab, origin: str | None, allowed: bool):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    address = f"localhost:{lab.port}"
    origin = f"http://{address}" if origin == "own" else origin
    expected = contextlib.nullcontext() if allowed else pytest.raises(InvalidStatus, match="403")
    with expected:
        connect(f"ws://{address}", origin=origin, open_timeout=20).close()


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("127.0.0.1", 200), ("evil.example", 403)])
def test_a_website_whose_name_leads_here_gets_no_page(lab, host: str, status: int):
    asking = http.client.HTTPConnection("localhost", lab.port, timeout=20)
    asking.request("GET", "/", headers={"Host": f"{host}:{lab.port}"})
    assert asking.getresponse().status == status
    asking.close()
