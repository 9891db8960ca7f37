"""`mirrormark lab`: open the live page on this machine."""

import socket
import threading
from pathlib import Path

from mirrormark.lab.session import Agents, Session


def lab(
    checkpoints: tuple[Path, ...] = (),
    /,
    body: str | None = None,
    preset: str = "swift",
    seed: int = 0,
    out: Path = Path("lab"),
    host: str = "localhost",
    port: int = 8080,
) -> None:
    """Meet the infant in the browser: stick a mark on it, move its mirror, see what it sees.

    Args:
        checkpoints: Run folders, checkpoints or snapshots to choose from; shipped and untrained agents are
            always there.
        body: The body to begin with (default: that of the first agent, else the infant).
        preset: Sizes of the untrained agent.
        seed: Of the first posture.
        out: Folder for recordings.
        host: Where to listen; anything but localhost lets other machines in, without a password.
        port: A busy one is left alone: the next free one is taken.
    """
    try:
        from mirrormark.lab.server import LabServer
    except ModuleNotFoundError as missing:
        if missing.name not in ("viser", "trimesh"):
            raise
        raise ValueError("the lab needs viser: install it with `pip install 'mirrormark[lab]'`.") from None
    free = free_port(host, port)
    page = LabServer(Session(Agents(checkpoints, preset), body, seed), out, host, free)
    if free != port:
        print(f"Port {port} is busy: the lab took {page.port} instead.", flush=True)
    print(
        f"The lab is open at http://{host}:{page.port} (Ctrl+C ends it). All tabs share one world,"
        " which rests while none is open.",
        flush=True,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("\nThe lab is closed.")
    finally:
        page.close()


def free_port(host: str, port: int, tries: int = 100) -> int:
    """The port, or the next one above it that nobody listens on."""
    if not 1 <= port <= 65535:
        raise ValueError(f"port is {port}: give a number from 1 to 65535.")
    for candidate in range(port, min(port + tries, 65536)):
        if _is_free(host, candidate):
            return candidate
    raise ValueError(f"port {port} and those after it are busy: give another --port.")


def _is_free(host: str, port: int) -> bool:
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ValueError(
            f"host {host!r} is unknown here: use localhost or an address of this machine."
        ) from error
    for family, kind, protocol, _, address in places:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError:
                return False
    return True
