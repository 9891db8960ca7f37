"""Who may talk to the lab: only pages that it served itself. viser opens its socket to every page that the
browser shows, so without this any website could steer the lab of whoever visits it."""

import http
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import websockets.asyncio.server as sockets

_LOG = logging.getLogger(__name__)
_LOG.addFilter(lambda record: record.getMessage() != "opening handshake failed")
"""Whoever asks for something else than a page (`curl -I`) gets no answer; the log need not tell of it. viser
sees to this as well, but only after the first page has been asked for."""
LOCAL = ("localhost", "127.0.0.1", "::1")


def may_talk(host: str, asked: str | None, origin: str | None) -> bool:
    """Whether a request for `asked` (its Host) from a page of `origin` may use a lab that listens on `host`.

    A lab that listens on localhost is asked for under a local name only: a website whose name leads to this
    machine is none. Programs that are no browsers send no origin, and could do what they like anyway.
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
