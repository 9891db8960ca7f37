"""The lab's server: who may talk to it, what a tab shows, and what a person's switches do."""

import contextlib
import http
import io
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numba
import viser
import websockets.asyncio.server as sockets

from mirrormark.lab.panel import ANEW, CHEST, FOREHEAD, LIMITS, OFF, PAUSE, RECORD, STEP, VIEWS, Panel
from mirrormark.lab.session import MAX_SEED, Answer, Session
from mirrormark.lab.threads import SPEEDS, AgentPictures, Pace, Pictures, within
from mirrormark.lab.view import Stage

LOCAL = ("localhost", "127.0.0.1", "::1")
_DRAW_EVERY_S = 0.05
_DRAW_OPENING_S = 0.5
"""While a tab opens, the machine is left to the browser."""
_CURVE_EVERY_S = 0.25
_OPENING_S = 3.0
_SWITCH_S = 0.0005
"""Python lets one thread run at a time and by default takes 5 ms to interrupt it. The simulation makes a
thousand short calls a step, and would wait for the drawing at many of them."""

_LOG = logging.getLogger(__name__)
_LOG.addFilter(lambda record: record.getMessage() != "opening handshake failed")
"""A request for something else than a page (`curl -I`) gets no answer and no line in the log. viser sees to
this as well, but only after the first page has been asked for."""


class LabServer:
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
        self.pictures = AgentPictures(session, wanted=self._is_watched)
        self.panel = Panel(self.server, session)  # first, so that a tab shows it first
        self.stage = Stage(self.server, session)
        self._closing, self._switch_s = threading.Event(), sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._connect()
        self._draw_first()
        self._drawer = threading.Thread(target=self._draw, daemon=True, name="page")
        for thread in (self.pace, self.pictures, self._drawer):
            thread.start()

    @property
    def port(self) -> int:
        """Where it listens: the port asked for, or the next free one."""
        return self.server.get_port()

    def _is_watched(self) -> bool:
        """Whether a tab is open; a new one gets a moment to draw itself before the simulation goes on."""
        return bool(self.server.get_clients()) and time.perf_counter() - self._opened_s > _OPENING_S

    def close(self) -> None:
        """Stop simulating, drawing and listening."""
        self._closing.set()
        self.pace.close()
        self.pictures.close()
        self._drawer.join(timeout=10)
        sys.setswitchinterval(self._switch_s)
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    # Drawing -----------------------------------------------------------------------------------------------

    def _draw_first(self) -> None:
        """All that the first tab will show, before it asks."""
        snapshot = self.session.snapshot()
        self.stage.show(snapshot)
        self.panel.show_pictures(Pictures(snapshot.t_s, snapshot.picture))
        self.panel.show_state(snapshot, self.pace)

    def _draw(self) -> None:
        numba.set_num_threads(1)  # the simulation has the other core
        curve_due, drawn, removals = 0.0, None, 0
        while not self._closing.is_set():
            began = time.perf_counter()
            try:
                if self.server.get_clients():
                    snapshot, pictures = self.session.snapshot(), self.pictures.latest
                    self.stage.show(snapshot)
                    if pictures is not drawn:
                        self.panel.show_pictures(pictures)
                        drawn = pictures
                    removals = self._report_removal(removals)
                    if began >= curve_due:
                        curve_due = began + _CURVE_EVERY_S
                        self.panel.show_state(snapshot, self.pace, self.pictures.problem)
            except Exception as error:  # the next instant may be drawn all the same
                _LOG.exception("drawing failed")
                self.panel.say(Answer(False, f"Drawing failed: {error}"))
            took = time.perf_counter() - began
            rest_s = max(_DRAW_EVERY_S - took, 0.5 * took) if self._is_watched() else _DRAW_OPENING_S
            self._closing.wait(rest_s)

    def _report_removal(self, known: int) -> int:
        counts = self.session.counts
        if counts.by_itself > known:
            how = f"after {counts.last_s:.1f} s, with its {counts.last_hand}"
            self.panel.say(Answer(True, f"It took the mark off itself, {how}."))
        return counts.by_itself

    # What a person does ------------------------------------------------------------------------------------

    def _connect(self) -> None:
        controls, session = self.panel.controls, self.session

        @self.server.on_client_connect
        def _(client: viser.ClientHandle) -> None:
            if len(self.server.get_clients()) <= 1:
                self._opened_s = time.perf_counter()

        @self.server.scene.on_click()
        def _(event: viser.SceneClickEvent) -> None:
            self._try(lambda: self.panel.say(session.click(event.ray_origin, event.ray_direction)))

        self._on(controls.view.on_click, self._press_view)
        self._on(controls.time.on_click, self._press_time)
        self._on(controls.put.on_click, self._press_put)
        self._on(controls.mark.on_click, self._press_mark)
        self._on(controls.mover.on_update, lambda _: session.set_mover(controls.mover.value))
        self._on(controls.body.on_update, lambda _: self._change_body())
        self._on(controls.agent.on_update, lambda _: self._change_agent())
        self._on(controls.kind.on_update, lambda _: self._change_mirror())
        self._on_number(controls.speed, *SPEEDS, self._change_speed)
        self._on_number(controls.seed, 0, MAX_SEED)
        for name, (low, high) in LIMITS.items():
            self._on_number(getattr(controls, name), low, high, self._change_mirror)

    def _on(self, register: Callable, act: Callable[[viser.ClientHandle], None]) -> None:
        """Call `act` for what a person does; a mistake is answered by a sentence, on the page."""

        @register
        def _(event: viser.GuiEvent) -> None:
            if event.client is not None:  # else the lab itself has set the switch
                self._try(partial(act, event.client))

    def _on_number(
        self, handle: Any, low: float, high: float, act: Callable[[], None] = lambda: None
    ) -> None:
        """A number out of its limits, which only a program sends, is put back before anything reads it."""
        good = [float(handle.value)]

        @handle.on_update
        def _(event: viser.GuiEvent) -> None:
            value = float(handle.value)
            if event.client is None:  # the lab itself has set the switch
                good[0] = value
                return
            if not within(value, low, high):
                handle.value = good[0]
                self.panel.say(Answer(False, f"{value:g} is out of range: give {low:g} to {high:g}."))
                return
            good[0] = value
            self._try(act)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except ValueError as mistake:
            self.panel.say(Answer(False, str(mistake)))
        except Exception as error:
            _LOG.exception("a switch failed")
            self.panel.say(Answer(False, f"That failed: {error}"))

    def _press_view(self, client: viser.ClientHandle) -> None:
        camera, wanted = client.camera, VIEWS[self.panel.controls.view.value]
        view = self.stage.view(wanted, self.session.snapshot())
        with client.atomic():
            camera.up_direction = view.up
            camera.position, camera.look_at, camera.fov = view.position, view.look_at, view.fov_rad

    def _press_time(self, _: viser.ClientHandle) -> None:
        {PAUSE: self._toggle_pause, STEP: self._one_step, ANEW: self._reset}[self.panel.controls.time.value]()

    def _press_put(self, _: viser.ClientHandle) -> None:
        surface = {FOREHEAD: 0, CHEST: 1}[self.panel.controls.put.value]
        self.panel.say(self.session.stick_in_sight(surface))

    def _press_mark(self, _: viser.ClientHandle) -> None:
        if self.panel.controls.mark.value == OFF:
            self.panel.say(self.session.remove())
        elif self.panel.controls.mark.value == RECORD:
            self._toggle_record()

    def _toggle_pause(self) -> None:
        self.pace.pause(not self.pace.paused)

    def _one_step(self) -> None:
        if not self.pace.paused:
            self._toggle_pause()
        self.session.step()

    def _reset(self) -> None:
        wanted = int(self.panel.controls.seed.value)
        self.session.reset(wanted if wanted != self.session.seed else None)
        self.panel.controls.seed.value = float(self.session.seed)
        self.panel.say(Answer(True, f"A new posture, of seed {self.session.seed}."))

    def _change_speed(self) -> None:
        self.pace.speed = float(self.panel.controls.speed.value)

    def _change_body(self) -> None:
        if self.panel.controls.body.value != self.session.body:
            self.session.set_body(self.panel.controls.body.value)
            self.panel.follow_session()
            self.panel.say(Answer(True, f"The {self.session.body}; its agent: {self.session.agent_name}."))

    def _change_agent(self) -> None:
        if self.panel.controls.agent.value != self.session.agent_name:
            self.session.set_agent(self.panel.controls.agent.value)
            self.panel.say(Answer(True, f"Its agent: {self.session.agent_name}."))

    def _change_mirror(self) -> None:
        """The switches as they stand, all together, so that the order of quick changes does not matter."""
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
                self.panel.say(Answer(True, f"Recording: press {RECORD!r} again to end it."))
                return
            recording = self.session.recorder.stop()
        self.panel.say(Answer(True, "Drawing the film …"))
        name = datetime.now().strftime("lab-%Y%m%d-%H%M%S")
        film, table = recording.write(self._out, name)
        self.panel.say(Answer(True, f"Saved {film.name} and {table.name} in {self._out.resolve()}."))


# Who may talk to the lab -----------------------------------------------------------------------------------


def may_talk(host: str, asked: str | None, origin: str | None) -> bool:
    """Whether a request for `asked` (its Host) from a page of `origin` may use a lab that listens on `host`.

    viser opens its socket to every page that the browser shows, so without this any website could steer a
    visitor's lab. A lab that listens on localhost is asked for under a local name only: a website whose name
    leads to this machine is none. Programs that are no browsers send no origin, and have other ways anyway.
    """
    name = urlsplit(f"//{asked or ''}").hostname or ""
    if host in LOCAL and name not in LOCAL:
        return False
    return origin is None or urlsplit(origin).netloc == asked


@contextmanager
def own_pages_only(host: str) -> Iterator[None]:
    """Sockets that are opened meanwhile answer other pages with 403."""
    real = sockets.serve

    def serve(*arguments: Any, process_request: Callable | None = None, **options: Any) -> Any:
        def checked(connection: Any, request: Any) -> Any:
            if not may_talk(host, request.headers.get("Host"), request.headers.get("Origin")):
                return connection.respond(http.HTTPStatus.FORBIDDEN, "This is not a page of the lab.\n")
            return process_request(connection, request) if process_request else None

        return real(*arguments, process_request=checked, **{"logger": _LOG, **options})

    sockets.serve = serve  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        sockets.serve = real  # pyright: ignore[reportAttributeAccessIssue]


def _no_sharing(*_: object, **__: object) -> None:
    """The lab stays on this machine: viser's public tunnel is switched off."""
