"""The panel beside the scene: three pictures of one instant, the curve of G, messages, and the switches."""

import base64
import html
import math
import time
from dataclasses import dataclass, replace
from typing import get_args

import imageio.v3 as iio
import numpy as np
import viser
import viser.uplot

from mirrormark.envs import bodies
from mirrormark.envs.mirror import MirrorConfig, MirrorKind
from mirrormark.lab.session import (
    CONTROL_STEP_S,
    MAX_SEED,
    MOVERS,
    UNTRAINED,
    Answer,
    GCurve,
    Session,
    Snapshot,
)
from mirrormark.lab.threads import SPEEDS, Pace, Pictures
from mirrormark.lab.view import View
from mirrormark.report import style

PAUSE, STEP, ANEW, OFF, RECORD = "Pause / go on", "One step", "Start anew", "Take it off", "Record"
FOREHEAD, CHEST = "Mark its forehead", "Mark its chest"
VIEWS: dict[str, View] = {"Shoulder": "shoulder", "Side": "side", "Its eye": "eye"}
"""The buttons."""
_WIDTH_PX = 400
_PICTURES = {"eye": "its eye sees", "agent": "as reconstructed", "self": "the self-prior expects"}
LIMITS = {
    "delay": (CONTROL_STEP_S, 3.0),
    "distance": (0.12, 0.4),
    "yaw": (-30.0, 30.0),
    "pitch": (-30.0, 30.0),
}
"""Of the mirror's sliders."""
WINDOW_S = 10.0
"""Length of the curve that is shown."""
_MESSAGE_S = 8.0
"""An error goes away after so long."""
_HINT = "Click its face or chest, or their reflection in the mirror, to stick a mark there."


@dataclass(frozen=True)
class Controls:
    """Everything a person can move."""

    view: viser.GuiButtonGroupHandle
    time: viser.GuiButtonGroupHandle
    put: viser.GuiButtonGroupHandle
    mark: viser.GuiButtonGroupHandle
    speed: viser.GuiSliderHandle
    seed: viser.GuiNumberHandle
    body: viser.GuiDropdownHandle
    agent: viser.GuiDropdownHandle
    mover: viser.GuiDropdownHandle
    kind: viser.GuiDropdownHandle
    delay: viser.GuiSliderHandle
    distance: viser.GuiSliderHandle
    yaw: viser.GuiSliderHandle
    pitch: viser.GuiSliderHandle


class Panel:
    """Docked at the right; the same for all tabs."""

    def __init__(self, server: viser.ViserServer, session: Session) -> None:
        self.server, self.session = server, session
        gui = server.gui
        gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(47, 127, 193))
        gui.main_panel.dock_right()
        gui.main_panel.set_width(_WIDTH_PX)
        self._state = gui.add_html("")
        self._pictures = gui.add_html("")
        self._said = gui.add_html(_said(Answer(True, _HINT)))
        self._error_until = math.inf
        self._top_nats = 20.0
        self._curve = self._add_curve()
        self.controls = self._add_controls()
        self.follow_session()

    def _add_curve(self) -> viser.GuiUplotHandle:
        axis = {"stroke": style.QUIET, "font": "11px sans-serif", "ticks": {"size": 4}}
        handle = self.server.gui.add_uplot(
            tuple(np.zeros(2) for _ in range(6)),
            (
                viser.uplot.Series(label="s"),
                viser.uplot.Series(label="mark", scale="mark", fill="rgba(26,158,63,0.16)", width=0),
                viser.uplot.Series(label="usual, high", width=0, stroke=style.QUIET),
                viser.uplot.Series(label="usual, low", width=0, stroke=style.QUIET),
                viser.uplot.Series(label="G", stroke="rgba(47,127,193,0.35)", width=1),
                viser.uplot.Series(label="mean of G", stroke=style.EXAM, width=2.5),
            ),
            bands=(viser.uplot.Band(series=(2, 3), fill="rgba(138,138,134,0.25)"),),
            scales=self._scales(0.0),
            axes=(viser.uplot.Axis(**axis, size=24), viser.uplot.Axis(**axis, size=46)),
            title="G (nats), last 10 s; bold: mean of 0.5 s",
            legend=viser.uplot.Legend(show=False),
            height=150,
            padding=(8, 8, 0, 0),
        )
        self.server.gui.add_html(
            f"<div style='font-size:0.72em;color:{style.QUIET};margin:0 1.1em'>Green: a mark is on. Grey:"
            " usual without a mark (5–95% of the means). Single peaks without a mark come with rare postures,"
            " hands before the face, or a mark that the reconstruction shows where there is none.</div>"
        )
        return handle

    def _scales(self, end_s: float) -> dict[str, viser.uplot.Scale]:
        """The last ten seconds; the height only ever grows."""
        end_s = max(end_s, WINDOW_S)
        return {
            "x": viser.uplot.Scale(time=False, auto=False, range=(end_s - WINDOW_S, end_s)),
            "y": viser.uplot.Scale(auto=False, range=(0.0, self._top_nats)),
            "mark": viser.uplot.Scale(auto=False, range=(0.0, 1.0)),
        }

    def _add_controls(self) -> Controls:
        gui = self.server.gui

        def slider(label: str, name: str, step: float, value: float) -> viser.GuiSliderHandle:
            return gui.add_slider(label, LIMITS[name][0], LIMITS[name][1], step, value)

        view = gui.add_button_group("View", tuple(VIEWS), hint="Where you stand: only in this tab.")
        put = gui.add_button_group("Mark", (FOREHEAD, CHEST), hint="Where its eye sees it best.")
        mark = gui.add_button_group(" ", (OFF, RECORD))
        clock = gui.add_button_group("Time", (PAUSE, STEP, ANEW), hint="A step is 0.05 s.")
        with gui.add_folder("Mirror"):
            mirror = (
                gui.add_dropdown("Mirror", get_args(MirrorKind)),
                slider("Delay (s)", "delay", CONTROL_STEP_S, 1.0),
                slider("Distance (m)", "distance", 0.001, 0.177),
                slider("Turn (°)", "yaw", 1.0, 0.0),
                slider("Tilt (°)", "pitch", 1.0, 0.0),
            )
        with gui.add_folder("Agent and body"):
            body = gui.add_dropdown("Body", bodies.names())
            agent = gui.add_dropdown("Agent", self.session.agents.names(self.session.body))
            mover = gui.add_dropdown("Moved by", MOVERS, hint="Its policy, or random movement.")
            speed = gui.add_slider("Speed (×)", SPEEDS[0], SPEEDS[1], 0.1, 1.0)
            # A float: viser cannot send integers of more than 64 bits on to other tabs.
            seed = gui.add_number("Seed", float(self.session.seed), min=0, max=MAX_SEED, step=1)
        return Controls(view, clock, put, mark, speed, seed, body, agent, mover, *mirror)

    # From the session to the switches ----------------------------------------------------------------------

    def follow_session(self) -> None:
        """Show the body, the agents that fit it and the mirror in force."""
        controls, session = self.controls, self.session
        controls.body.value = session.body
        controls.agent.options = session.agents.names(session.body)
        controls.agent.value = session.agent_name
        controls.mover.value = session.mover
        self.follow_mirror()

    def follow_mirror(self) -> None:
        controls, mirror = self.controls, self.session.world.mirror
        controls.kind.value = mirror.kind
        controls.delay.visible = mirror.kind == "delayed"
        for name, value in _shown(mirror).items():
            getattr(controls, name).value = value

    def wanted_mirror(self) -> MirrorConfig:
        """The mirror in force with what a person has changed. Sliders show it rounded: what was not touched
        must stay as it is."""
        controls, mirror, kind = self.controls, self.session.world.mirror, self.controls.kind.value
        shown = _shown(mirror)
        given = {name: float(getattr(controls, name).value) for name in ("delay", "distance", "yaw", "pitch")}
        new = {name: value for name, value in given.items() if value != shown.get(name)}
        steps = round(new["delay"] / CONTROL_STEP_S) if "delay" in new else mirror.delay_control_steps
        return replace(
            mirror,
            kind=kind,
            delay_control_steps=steps if kind == "delayed" else 0,
            distance_m=new.get("distance", mirror.distance_m),
            yaw_rad=math.radians(new["yaw"]) if "yaw" in new else mirror.yaw_rad,
            pitch_rad=math.radians(new["pitch"]) if "pitch" in new else mirror.pitch_rad,
        )

    # What is shown -----------------------------------------------------------------------------------------

    def say(self, answer: Answer) -> None:
        self._error_until = math.inf if answer.done else time.monotonic() + _MESSAGE_S
        self._said.content = _said(answer)

    def show_pictures(self, pictures: Pictures) -> None:
        """Eye, reconstruction and expectation of one instant, enlarged by the browser without smoothing."""
        shown = (pictures.eye, pictures.reconstruction, pictures.expectation)
        self._pictures.content = (
            "<div style='display:flex;gap:0.5em;margin:0.2em 0.8em 0'>"
            + "".join(_figure(name, picture) for name, picture in zip(_PICTURES, shown))
            + f"</div><div style='font-size:0.72em;text-align:center;color:{style.QUIET}'>all three at"
            f" <span id='instant'>{pictures.t_s:.2f}</span> s</div>"
        )

    def show_state(self, snapshot: Snapshot, pace: Pace, problem: str | None = None) -> None:
        self._state.content = self._state_html(snapshot, pace)
        if problem := pace.problem or problem:
            self.say(Answer(False, problem))
        elif time.monotonic() > self._error_until:
            self.say(Answer(True, _HINT))
        self._show_g(self.session.g_curve())

    def _show_g(self, curve: GCurve) -> None:
        if len(curve.t_s) < 2:
            return
        end_s = float(curve.t_s[-1])
        shown = curve.t_s >= end_s - WINDOW_S
        low, high = curve.usual or (math.nan, math.nan)
        self._top_nats = max(self._top_nats, 10.0 * math.ceil(float(curve.nats[shown].max()) / 10))
        t_s = curve.t_s[shown]
        self._curve.data = (
            t_s,
            curve.marked[shown].astype(float),
            np.full(len(t_s), high),
            np.full(len(t_s), low),
            curve.nats[shown],
            curve.mean[shown],
        )
        self._curve.scales = self._scales(end_s)

    def _rate(self, pace: Pace) -> str:
        rate = "paused" if pace.paused else f"{pace.steps_per_s:.0f} control steps a second"
        kept = len(self.session.recorder)
        if not kept:
            return rate
        length = f"{kept * CONTROL_STEP_S:.0f} s"
        if self.session.recorder.running:
            return f"{rate} · recording, {length}"
        return f"{rate} · the recording has ended ({length}): press {RECORD!r} to save it"

    def _state_html(self, snapshot: Snapshot, pace: Pace) -> str:
        session, counts = self.session, self.session.counts
        if snapshot.mark_on:
            seen = (
                f"{snapshot.mark_px} pixels of it in its eye" if snapshot.mark_px else "its eye cannot see it"
            )
            mark = f"<b style='color:#1a9e3f'>on</b>, {seen}; hand {100 * snapshot.distance_m:.0f} cm away"
        else:
            mark = "none"
        last = f" (the last after {counts.last_s:.1f} s, {counts.last_hand})" if counts.by_itself else ""
        ablation = session.candidate.setup.ablation
        rows = {
            "agent": html.escape(_about_agent(session) + (f" · {ablation}" if ablation else "")),
            "mark": mark,
            "taken off": f"<b>{counts.by_itself}</b> by itself{last}, {counts.by_person} by you",
            "time": f"{snapshot.t_s:.1f} s · {self._rate(pace)}",
        }
        left = f"color:{style.QUIET};padding-right:1em;white-space:nowrap;vertical-align:top"
        cells = "".join(f"<tr><td style='{left}'>{k}</td><td>{v}</td></tr>" for k, v in rows.items())
        return f"<table id='state' style='font-size:0.8em;line-height:1.45;margin:0 0.8em'>{cells}</table>"


def _shown(mirror: MirrorConfig) -> dict[str, float]:
    """What the sliders say of a mirror; one that is not delayed leaves the delay to the slider."""
    shown: dict[str, float] = {
        "distance": round(mirror.distance_m, 3),
        "yaw": round(math.degrees(mirror.yaw_rad)),
        "pitch": round(math.degrees(mirror.pitch_rad)),
    }
    if mirror.kind == "delayed":
        shown["delay"] = round(mirror.delay_control_steps * CONTROL_STEP_S, 6)
    return shown


def _about_agent(session: Session) -> str:
    """Its name; of an untrained one also what that means, and whether there is another."""
    if session.agent_name != UNTRAINED:
        return session.agent_name
    alone = session.agents.names(session.body) == (UNTRAINED,)
    missing = f": no trained agent is shipped for the {session.body}" if alone else ""
    return f"{UNTRAINED}, it has learned nothing{missing}"


def _figure(name: str, picture: np.ndarray | None) -> str:
    """A picture with its caption; grey where there is none. `decoding=sync`: the next one comes at once."""
    shown = np.full((1, 1, 3), 228, np.uint8) if picture is None else picture
    data = base64.b64encode(iio.imwrite("<bytes>", shown, extension=".png", compress_level=1)).decode()
    return (
        f"<figure style='flex:1;margin:0;text-align:center;font-size:0.75em'>"
        f"<img id='{name}' decoding='sync' alt='what {_PICTURES[name]}' src='data:image/png;base64,{data}'"
        f" style='width:100%;aspect-ratio:1;image-rendering:pixelated;border-radius:4px'/>"
        f"<figcaption>{_PICTURES[name]}</figcaption></figure>"
    )


def _said(answer: Answer) -> str:
    colour = style.INK if answer.done else style.REMOVAL
    return (
        f"<div id='said' role='status' style='font-size:0.85em;margin:0.2em 0.9em;min-height:2.4em;"
        f"color:{colour}'>{html.escape(answer.text)}</div>"
    )
