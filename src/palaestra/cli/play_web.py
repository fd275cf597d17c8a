"""`palaestra play --web`: persons play on a local page, each by a link of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestra.cli.play_game import Seat, play, results_of
from palaestra.core.errors import MissingPackage

if TYPE_CHECKING:
    from palaestra.core.environment import Environment
    from palaestra.core.task import Task

HOST = "127.0.0.1"
LINGER = 60.0  # seconds for which the results wait for pages that have not shown them
LOADING = 1.5  # seconds in which a browser loads the style of the last page


def play_on_web(
    made: Environment, task: Task, seats: Sequence[Seat], *, seconds: float, port: int
) -> None:
    """Play one game, in which persons act on their pages, and print the result of each player.

    Args:
        made: the environment.
        task: of the environment.
        seats: who plays for each player.
        seconds: that each player has to decide, in all.
        port: of the pages; 0: any free one.

    Raises:
        InputError: there is no such agent or model, or nothing can listen at the port.
    """
    try:
        import palaestra.viewer.play_site  # noqa: F401
    except ImportError as error:
        raise MissingPackage(
            f"The pages of a game need the Python package '{error.name}', which is not installed; "
            "install it with: pip install 'palaestra[viewer]'."
        ) from error
    asyncio.run(_served(made, task, seats, seconds, port))


async def _served(
    made: Environment, task: Task, seats: Sequence[Seat], seconds: float, port: int
) -> None:
    import uvicorn

    from palaestra.cli.view_command import listening
    from palaestra.viewer.play_site import PersonInBrowser, PlaySite

    persons = {seat.player: PersonInBrowser(seat.player) for seat in seats if not seat.agent}
    socket = listening(HOST, port)
    site = PlaySite(list(persons.values()), f"{task.environment}, task {task.id}")
    config = uvicorn.Config(
        site.application(), log_level="warning", timeout_graceful_shutdown=1, lifespan="off"
    )
    server = uvicorn.Server(config)

    def show_links() -> None:
        address = f"http://{HOST}:{socket.getsockname()[1]}"
        for player, person in persons.items():
            print(f"{player}: {address}/play/{person.token}", flush=True)
        print(f"Each has {seconds:g} s to decide, in all. Ctrl-C ends the game.", file=sys.stderr)

    serving = asyncio.ensure_future(server.serve(sockets=[socket]))
    game = play(made, task, seats, persons, begun=show_links, seconds=seconds)
    playing = asyncio.ensure_future(game)
    try:
        await asyncio.wait({serving, playing}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():  # Ctrl-C ended the server
            return
        lines = results_of(playing.result())
        print("\n".join(lines), flush=True)
        for person in persons.values():
            person.finish(lines)
        await site.all_read_the_end(LINGER)
        await asyncio.sleep(LOADING)
    finally:
        playing.cancel()
        server.should_exit = True
        await asyncio.gather(playing, serving, return_exceptions=True)
