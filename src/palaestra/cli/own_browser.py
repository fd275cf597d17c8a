"""`palaestra play --own-browser`: a person does a task on its very page, and types the answer here.

The page's site runs in this process, as for an agent, and is served on this machine. In a browser
of one's own, time is real, and nothing is checked but what the page sends to its site.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from palaestra.browser.sites import HostedPage, Hosting, Request, Site
from palaestra.cli.browser_window import desktop, opening
from palaestra.cli.play_game import PLAYED, Seat, play, results_of
from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.gesture_line import write_line
from palaestra.runtime.visible_text import visible

if TYPE_CHECKING:
    from palaestra.core.environment import Environment, Transition
    from palaestra.core.session import Session
    from palaestra.core.task import Task

HOST = "127.0.0.1"
MOST = 1 << 20  # bytes of a request


def play_in_own_browser(made: Environment, task: Task, *, port: int, run: Path | None) -> None:
    """Serve a task's page, ask for the answer, and print and record what came of it.

    Args:
        made: the environment.
        task: of the environment.
        port: of the page; 0: any free one.
        run: where to record the episode: a new run, or one of earlier plays; None: nowhere.

    Raises:
        InputError: the environment's tasks are not on pages, nothing can listen at the port, or
            the run is of something else.
    """
    from palaestra.cli.played_run import key_of, played_run

    if not isinstance(made, Hosting):
        raise InputError(
            f"The tasks of '{task.environment}' have no page of their own; leave out --own-browser."
        )
    with ExitStack() as held:
        opened = held.enter_context(played_run(run)) if run else None
        key = key_of(opened, task) if opened else PLAYED
        front = OwnBrowser(made, port, held)
        seats = [Seat(player) for player in made.spec.players]
        fronts = {seat.player: front for seat in seats}
        episode = asyncio.run(play(made, task, seats, fronts, begun=lambda: None, key=key))
        print("", *results_of(episode), sep="\n")
        if opened is not None:
            opened.database.finish(episode)
            print(f"Recorded as {key} in {run}.")


class OwnBrowser:
    """The front of a person whose page is in a browser; the answer is typed in the terminal."""

    def __init__(self, made: Hosting, port: int, held: ExitStack) -> None:
        """Prepare to serve the page at a port for as long as `held` lasts."""
        self._made, self._port, self._held = made, port, held

    def begin(self, session: Session) -> None:
        """Serve the page, open it if there is a desktop, and say what to do."""
        page = self._made.hosted()
        address = self._held.enter_context(served(page.site, self._port))
        if desktop():
            self._held.enter_context(opening(address))
        print(f"{visible(page.goal)}\n\nThe page: {address}")
        if page.files:
            print(f"Files to upload: {self._written(page)}")
        print("Type the answer here once you have it, or quit.", flush=True)

    async def ask(self, session: Session) -> Action | None:
        """Return the answer that the person types; None: it leaves."""
        from palaestra.cli.play_command import read_line

        while (line := read_line()) == "":  # the page is served by a thread
            continue
        if line in (None, "quit"):
            return None
        return Action(write_line(Gesture("answer", text=str(line))))

    def show(self, transition: Transition) -> None:
        """Show what followed the answer."""
        print(visible(transition.observation.text))

    def _written(self, page: HostedPage) -> str:
        """Write the files where the person's browser can read them; return the folder."""
        folder = self._held.enter_context(TemporaryDirectory(prefix="palaestra-play-"))
        for name, content in page.files.items():
            Path(folder, name).write_bytes(content)
        return folder


@contextmanager
def served(site: Site, port: int) -> Iterator[str]:
    """Serve a site on this machine; yields its address.

    Raises:
        InputError: nothing can listen at the port.
    """
    from palaestra.cli.view_command import listening

    lock = threading.Lock()  # a site is called from one thread at a time

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond()

        def do_POST(self) -> None:
            self._respond()

        def _respond(self) -> None:
            own = {f"{HOST}:{at}", f"localhost:{at}"}
            length = int(self.headers.get("Content-Length") or 0)
            if self.headers.get("Host") not in own or not 0 <= length <= MOST:
                self.send_error(400)  # a page elsewhere, by a name that leads here, or too much
                return
            body = self.rfile.read(length)
            asked = Request(self.command, f"{address}{self.path.lstrip('/')}", {}, body)
            with lock:
                response = site(asked)
            self.send_response(response.status)
            for name, value in {"Content-Type": response.type, **response.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    socket = listening(HOST, port)
    at = socket.getsockname()[1]
    address = f"http://{HOST}:{at}/"
    server = ThreadingHTTPServer((HOST, at), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket
    thread = threading.Thread(
        target=server.serve_forever, args=(0.05,), name="own-browser", daemon=True
    )
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
