"""The page: what a person sees beside the scene, and the switches."""

import contextlib
import io
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numba
import viser

from mirrormark.lab.agent_view import Thinker
from mirrormark.lab.guard import own_pages_only
from mirrormark.lab.pace import Pace
from mirrormark.lab.panel import ANEW, PAUSE, RECORD, STEP, Panel
from mirrormark.lab.session import Answer, Session
from mirrormark.lab.view import Stage

_DRAW_EVERY_S = 0.05
_DRAW_OPENING_S = 0.5
"""While a tab opens, the machine is left to the browser."""
_CURVE_EVERY_S = 0.25
_OPENING_S = 3.0
_SWITCH_S = 0.0005
"""Python lets one thread run at a time and by default takes 5 ms to interrupt it. Life makes a thousand short
calls a step, and would wait for the drawing at many of them."""


class Page:
    """Serves one session to any number of tabs, until `close`."""

    def __init__(self, session: Session, out: Path, host: str = "localhost", port: int = 8080) -> None:
        self.session, self._out = session, out
        # The command says where the lab is; viser need not.
        with contextlib.redirect_stdout(io.StringIO()), own_pages_only(host):
            self.server = viser.ViserServer(host=host, port=port, label="mirrormark lab", verbose=False)
        # A tab may close while its reflection is being drawn: nothing to warn of.
        warnings.filterwarnings("ignore", message="Queued a .* on a closed connection", module="viser")
        self.server.request_share_url = _no_sharing  # pyright: ignore[reportAttributeAccessIssue]
        self._opened_s = 0.0
        self.pace = Pace(session, wanted=self._is_watched)
        self.thinker = Thinker(session, wanted=self._is_watched)
        self.panel = Panel(self.server, session)  # a tab is told of it first, and shows it first
        self.stage = Stage(self.server, session)
        self._closing, self._switch_s = threading.Event(), sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._connect()
        self._draw_first()
        self._drawer = threading.Thread(target=self._draw, daemon=True, name="page")
        for thread in (self.pace, self.thinker, self._drawer):
            thread.start()

    @property
    def port(self) -> int:
        """Where it listens: the port asked for, or the next free one."""
        return self.server.get_port()

    def _is_watched(self) -> bool:
        """Whether a tab is open; a new one gets a moment to draw itself before life goes on."""
        return bool(self.server.get_clients()) and time.perf_counter() - self._opened_s > _OPENING_S

    def close(self) -> None:
        """Stop living, drawing and listening."""
        self._closing.set()
        self.pace.close()
        self.thinker.close()
        self._drawer.join(timeout=10)
        sys.setswitchinterval(self._switch_s)
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    # Drawing -----------------------------------------------------------------------------------------------

    def _draw_first(self) -> None:
        """All that the first tab will show, before it asks: it need not wait for it."""
        look = self.session.look()
        self.stage.show(look)
        self.panel.show_pictures(look.picture, None, None)
        self.panel.show_state(look, self.pace)

    def _draw(self) -> None:
        numba.set_num_threads(1)  # life has the other core, and not every pool of numba bears two users
        curve_due, drawn, known = 0.0, None, self.session.counts.by_itself
        while not self._closing.is_set():
            began = time.perf_counter()
            if self.server.get_clients():
                look = self.session.look()
                self.stage.show(look)
                pictures = (look.picture, *self.thinker.thoughts)
                if drawn is None or any(a is not b for a, b in zip(pictures, drawn)):
                    self.panel.show_pictures(*pictures)
                    drawn = pictures
                if (counts := self.session.counts).by_itself > known:
                    known = counts.by_itself
                    how = f"after {counts.last_s:.1f} s, with its {counts.last_hand}"
                    self._say(Answer(True, f"It took the mark off itself, {how}."))
                if began >= curve_due:
                    curve_due = began + _CURVE_EVERY_S
                    self.panel.show_state(look, self.pace)
            took = time.perf_counter() - began
            rest_s = max(_DRAW_EVERY_S - took, 0.5 * took) if self._is_watched() else _DRAW_OPENING_S
            self._closing.wait(rest_s)

    # What a person does ------------------------------------------------------------------------------------

    def _connect(self) -> None:
        controls, session = self.panel.controls, self.session

        @self.server.on_client_connect
        def _(client: viser.ClientHandle) -> None:
            if len(self.server.get_clients()) <= 1:
                self._opened_s = time.perf_counter()

        @self.server.scene.on_click()
        def _(event: viser.SceneClickEvent) -> None:
            self._say(session.click(event.ray_origin, event.ray_direction))

        self._on(controls.time.on_click, self._press_time)
        self._on(controls.mark.on_click, self._press_mark)
        self._on(controls.speed.on_update, lambda: setattr(self.pace, "speed", controls.speed.value))
        self._on(controls.mover.on_update, lambda: session.set_mover(controls.mover.value))
        self._on(controls.body.on_update, self._change_body)
        self._on(controls.agent.on_update, self._change_agent)
        for handle in (controls.kind, controls.delay, controls.distance, controls.yaw, controls.pitch):
            self._on(handle.on_update, self._change_mirror)

    def _on(self, register: Callable, act: Callable[[], None]) -> None:
        """Call `act` for what a person does; a mistake is answered by a sentence, on the page."""

        @register
        def _(event: viser.GuiEvent) -> None:
            if event.client is None:  # the lab itself has set the switch
                return
            try:
                act()
            except ValueError as mistake:
                self._say(Answer(False, str(mistake)))

    def _say(self, answer: Answer) -> None:
        self.panel.say(answer)

    def _press_time(self) -> None:
        {PAUSE: self._toggle_pause, STEP: self._one_step, ANEW: self._reset}[self.panel.controls.time.value]()

    def _press_mark(self) -> None:
        if self.panel.controls.mark.value == RECORD:
            self._toggle_record()
        else:
            self._say(self.session.remove())

    def _toggle_pause(self) -> None:
        self.pace.pause(not self.pace.paused)

    def _one_step(self) -> None:
        if not self.pace.paused:
            self._toggle_pause()
        self.session.step()

    def _reset(self) -> None:
        wanted = int(self.panel.controls.seed.value)
        self.session.reset(wanted if wanted != self.session.seed else None)
        self.panel.controls.seed.value = self.session.seed
        self._say(Answer(True, f"A new posture, of seed {self.session.seed}."))

    def _change_body(self) -> None:
        if self.panel.controls.body.value != self.session.body:
            self.session.set_body(self.panel.controls.body.value)
            self.panel.follow_session()
            self._say(Answer(True, f"The {self.session.body}; its agent: {self.session.agent_name}."))

    def _change_agent(self) -> None:
        if self.panel.controls.agent.value != self.session.agent_name:
            self.session.set_agent(self.panel.controls.agent.value)
            self._say(Answer(True, f"Its agent: {self.session.agent_name}."))

    def _change_mirror(self) -> None:
        """The switches as they stand, all together, so that the order of quick changes is no matter."""
        try:
            self.session.set_mirror(self.panel.wanted_mirror())
        except ValueError:
            self.panel.follow_mirror()
            raise
        self.panel.controls.delay.visible = self.session.world.mirror.kind == "delayed"

    def _toggle_record(self) -> None:
        with self.session.lock:
            if not self.session.recorder.running and not len(self.session.recorder):
                self.session.recorder.start()
                self._say(Answer(True, f"Recording: press {RECORD!r} again to end it."))
                return
            recording = self.session.recorder.stop()
        self._say(Answer(True, "Drawing the film …"))
        name = datetime.now().strftime("lab-%Y%m%d-%H%M%S")
        film, table = recording.write(self._out, name)
        self._say(Answer(True, f"Saved {film.name} and {table.name} in {self._out.resolve()}."))


def _no_sharing(*_: object, **__: object) -> None:
    """The lab stays on this machine: viser's public tunnel is switched off."""
