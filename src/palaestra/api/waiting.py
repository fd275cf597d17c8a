"""Waiting for asynchronous work wherever one is: in a script, a notebook, a running event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def wait(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do `work` to its end: in an event loop of its own, where one runs here in another thread.

    Notebooks run their cells inside an event loop, which stands still meanwhile, as it does for
    any other call; `await` the asynchronous form to let it go on.

    Raises:
        KeyboardInterrupt: Ctrl-C came; the work was cancelled and has put its things in order.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    return _in_thread(work)


def _in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop = asyncio.new_event_loop()
    outcome: Future[T] = Future()
    tasks: list[asyncio.Task[T]] = []

    async def main() -> T:
        tasks.append(asyncio.ensure_future(work()))
        return await tasks[0]

    def live() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                outcome.set_result(runner.run(main()))
        except BaseException as error:
            outcome.set_exception(error)

    def stop() -> None:
        for task in tasks:
            task.cancel()

    thread = threading.Thread(target=live, name="palaestra")
    thread.start()
    try:
        with _interruptible():
            return outcome.result()
    except KeyboardInterrupt:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop)
        raise
    finally:
        thread.join()  # what is done is written down first


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the waiting: `asyncio.run` would only tell a loop that stands still."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
