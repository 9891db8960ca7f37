"""The panel beside the scene: three pictures, the curve of G, what happened, and the switches."""

import base64
import html
import math
from dataclasses import dataclass, replace
from typing import get_args

import imageio.v3 as iio
import numpy as np
import viser
import viser.uplot

from mirrormark.envs import bodies
from mirrormark.envs.mirror import MirrorConfig, MirrorKind
from mirrormark.lab.agents import UNTRAINED
from mirrormark.lab.pace import Pace
from mirrormark.lab.session import CONTROL_STEP_S, MOVERS, Answer, Look, Session
from mirrormark.report import style

PAUSE, STEP, ANEW, OFF, RECORD = "Pause / go on", "One step", "Start anew", "Take it off", "Record"
"""The buttons."""
_WIDTH_PX = 400
_PICTURES = {"eye": "its eye sees", "agent": "its agent sees", "self": "its self expects"}


@dataclass(frozen=True)
class Controls:
    """Everything a person can move."""

    time: viser.GuiButtonGroupHandle
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
        self._said = gui.add_html(_said(Answer(True, "Click on its head or torso to stick a mark there.")))
        self._curve = self._add_curve()
        self.controls = self._add_controls()
        self.follow_session()

    def _add_curve(self) -> viser.GuiUplotHandle:
        axis = {"stroke": style.QUIET, "font": "11px sans-serif", "ticks": {"size": 4}}
        return self.server.gui.add_uplot(
            tuple(np.zeros(2) for _ in range(3)),
            (
                viser.uplot.Series(label="s"),
                viser.uplot.Series(label="mark", scale="mark", fill="rgba(26,158,63,0.16)", width=0),
                viser.uplot.Series(label="G", stroke=style.EXAM, width=1.5),
            ),
            scales={
                "x": viser.uplot.Scale(time=False, auto=True),
                "y": viser.uplot.Scale(auto=True),
                "mark": viser.uplot.Scale(auto=False, range=(0.0, 1.0)),
            },
            axes=(viser.uplot.Axis(**axis, size=24), viser.uplot.Axis(**axis, size=46)),
            title="G, how unfamiliar it is to itself (nats); green: a mark is on",
            legend=viser.uplot.Legend(show=False),
            height=140,
            padding=(0, 8, 0, 0),
        )

    def _add_controls(self) -> Controls:
        gui = self.server.gui
        time, mark = (
            gui.add_button_group("Time", (PAUSE, STEP, ANEW)),
            gui.add_button_group("Mark", (OFF, RECORD)),
        )
        with gui.add_folder("Mirror"):
            mirror = (
                gui.add_dropdown("Mirror", get_args(MirrorKind)),
                gui.add_slider("Delay (s)", CONTROL_STEP_S, 3.0, CONTROL_STEP_S, 1.0),
                gui.add_slider("Distance (m)", 0.12, 0.40, 0.001, 0.177),
                gui.add_slider("Turn (°)", -30, 30, 1, 0),
                gui.add_slider("Tilt (°)", -30, 30, 1, 0),
            )
        with gui.add_folder("Who, and how"):
            body = gui.add_dropdown("Body", bodies.names())
            agent = gui.add_dropdown("Agent", self.session.agents.names(self.session.body))
            mover = gui.add_dropdown("Moved by", MOVERS)
            speed = gui.add_slider("Speed (×)", 0.1, 4.0, 0.1, 1.0)
            seed = gui.add_number("Seed", self.session.seed, min=0, max=2**31 - 1, step=1)
        return Controls(time, mark, speed, seed, body, agent, mover, *mirror)

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
        self._said.content = _said(answer)

    def show_pictures(self, *pictures: np.ndarray | None) -> None:
        """What the eye, the agent and the self-prior see, enlarged by the browser without smoothing."""
        self._pictures.content = (
            "<div style='display:flex;gap:0.5em;margin:0.2em 0.8em'>"
            + "".join(_figure(name, picture) for name, picture in zip(_PICTURES, pictures))
            + "</div>"
        )

    def show_state(self, look: Look, pace: Pace) -> None:
        with self.session.lock:
            curve = list(self.session.curve)
        self._state.content = self._state_html(look, pace)
        if pace.problem:
            self.say(Answer(False, pace.problem))
        if len(curve) > 1:
            t, g, on = (np.array(part, float) for part in zip(*curve))
            self._curve.data = (t, on, g)

    def _rate(self, pace: Pace) -> str:
        rate = "paused" if pace.paused else f"{pace.steps_per_s:.0f} control steps a second"
        kept = len(self.session.recorder)
        return f"{rate} · recording, {kept * CONTROL_STEP_S:.0f} s" if kept else rate

    def _state_html(self, look: Look, pace: Pace) -> str:
        session, counts = self.session, self.session.counts
        if look.mark_on:
            seen = f"{look.mark_px} pixels of it in its eye" if look.mark_px else "its eye cannot see it"
            mark = f"<b style='color:#1a9e3f'>on</b>, {seen}; hand {100 * look.distance_m:.0f} cm away"
        else:
            mark = "none"
        last = f" (the last after {counts.last_s:.1f} s, {counts.last_hand})" if counts.by_itself else ""
        ablation = session.candidate.setup.ablation
        rows = {
            "agent": html.escape(_about_agent(session) + (f" · {ablation}" if ablation else "")),
            "mark": mark,
            "taken off": f"<b>{counts.by_itself}</b> by itself{last}, {counts.by_person} by you",
            "time": f"{look.t_s:.1f} s · {self._rate(pace)}",
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
