"""The DevTools protocol over a pipe: calls with answers, and events to those who listen.

Whoever waits for an answer reads the pipe, so that no thread stands between a call and its answer.
Protocol: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from palaestra.browser.browser_process import BrowserProcess
from palaestra.core.errors import EnvironmentFault

PATIENCE = 30.0  # seconds until a call that is not answered counts as a hang
_CHUNK = 1 << 20

Parameters = dict[str, Any]
Listener = Callable[[str, Parameters], None]  # (method, parameters)


class Refusal(Exception):
    """The browser refuses a call, for instance because the element has gone."""


class Connection:
    """The pipe to one browser; used by one thread at a time."""

    def __init__(self, process: BrowserProcess) -> None:
        self._process = process
        self._number = 0
        self._rest = b""
        self._answers: dict[int, Parameters] = {}
        self._followed: dict[int, Callable[[Parameters], None]] = {}
        self.listeners: dict[str, Listener] = {}
        """By session; "" for the browser itself."""

    def send(self, method: str, session: str = "", **parameters: object) -> int:
        """Send a call and return its number, to wait for later."""
        self._number += 1
        message: Parameters = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self._process.writes, data) :]
        except (OSError, ValueError):
            raise self._crash() from None
        return self._number

    def handle(self, number: int, then: Callable[[Parameters], None]) -> None:
        """Give the answer of a sent call, a result or an error, to a function when it comes."""
        self._followed[number] = then

    def tell(self, method: str, session: str = "", **parameters: object) -> None:
        """Send a call whose answer nobody needs, such as one to a tab that may be gone."""
        self.handle(self.send(method, session, **parameters), _ignore)

    def call(self, method: str, session: str = "", **parameters: object) -> Parameters:
        """Make a call and return its result.

        Raises:
            EnvironmentFault: the browser crashed or does not answer.
            Refusal: it refuses the call.
        """
        return self.wait([self.send(method, session, **parameters)])[0]

    def wait(
        self,
        numbers: Sequence[int],
        until: Callable[[], bool] | None = None,
        seconds: float | None = None,
    ) -> list[Parameters]:
        """Return the results of calls; fewer if `until` becomes true before; raises like `call`."""
        deadline = time.monotonic() + (seconds or PATIENCE)
        while not all(number in self._answers for number in numbers):
            if until is not None and until():
                return []
            self._read(deadline)
        answers = [self._answers.pop(number) for number in numbers]
        for answer in answers:
            if "error" in answer:
                raise Refusal(str(answer["error"].get("message", answer["error"])))
        return [answer["result"] for answer in answers]

    def wait_for(self, ready: Callable[[], bool], seconds: float | None = None) -> None:
        """Read until a condition holds that events bring about; raises like `call`."""
        deadline = time.monotonic() + (seconds or PATIENCE)
        while not ready():
            self._read(deadline)

    def _read(self, deadline: float) -> None:
        """Read at least one message."""
        parts = [self._rest]
        while b"\0" not in parts[-1]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.reads], [], [], left)[0]:
                self._rest = b"".join(parts)
                raise EnvironmentFault("hang", "the browser does not answer")
            data = b""
            with contextlib.suppress(OSError, ValueError):
                data = os.read(self._process.reads, _CHUNK)
            if not data:
                raise self._crash()
            parts.append(data)
        *messages, self._rest = b"".join(parts).split(b"\0")
        for message in messages:
            self._dispatch(json.loads(message))

    def _dispatch(self, message: Parameters) -> None:
        if "id" in message:
            then = self._followed.pop(message["id"], None)
            if then is None:
                self._answers[message["id"]] = message
            else:
                then(message)
            return
        listener = self.listeners.get(message.get("sessionId", ""))
        if listener is not None:
            listener(message["method"], message["params"])

    def _crash(self) -> EnvironmentFault:
        words = self._process.last_words()
        return EnvironmentFault("crash", f"the browser ended: {words or 'it said nothing'}")


def _ignore(answer: Parameters) -> None:
    pass
