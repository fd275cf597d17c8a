"""Blocking on asynchronous work: in a script, a notebook or a running event loop."""

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
    """Run `work` in its own event loop, in another thread if an event loop runs here.

    Notebooks run their cells inside an event loop, which is blocked meanwhile, as by any other
    call; `await` the asynchronous form to keep it running.

    Raises:
        KeyboardInterrupt: Ctrl-C; the work was cancelled and has cleaned up.
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

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                outcome.set_result(runner.run(main()))
        except BaseException as error:
            outcome.set_exception(error)

    def stop() -> None:
        for task in tasks:
            task.cancel()

    thread = threading.Thread(target=run, name="palaestra")
    thread.start()
    try:
        with _interruptible():
            return outcome.result()
    except KeyboardInterrupt:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop)
        raise
    finally:
        thread.join()  # finished work is stored first


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt the wait: `asyncio.run` would only signal a blocked event loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
