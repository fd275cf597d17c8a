"""The DevTools protocol over a pipe: calls with answers, and events to those who listen.

The pipe belongs to a browser, and each of its worlds has a connection. Of the threads that wait for
an answer, one reads the pipe for all, so that no other thread stands between a call and its answer.
What happens to a world is handled in its own thread.
Protocol: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from palaestra.browser.browser_process import BrowserProcess
from palaestra.core.errors import EnvironmentFault, SharedFault

PATIENCE = 30.0  # seconds until a call that is not answered counts as a hang
_CHUNK = 1 << 20

Parameters = dict[str, Any]
Listener = Callable[[str, Parameters], None]  # (method, parameters)


class Refusal(Exception):
    """The browser refuses a call, for instance because the element has gone."""


class Pipe:
    """The pipe to one browser, for any number of threads."""

    def __init__(self, process: BrowserProcess) -> None:
        self._process = process
        self._number = 0
        self._rest = b""  # the beginning of a message
        self._writing = threading.Lock()
        self.lock = threading.Lock()  # of what follows, and of the mail of all connections
        self._callers: dict[int, Connection] = {}  # by the number of a call without an answer
        self._contexts: dict[str, Connection] = {}
        self._targets: dict[str, Connection] = {}
        self._sessions: dict[str, Connection] = {}
        self._reading = False
        self._waiting: list[Connection] = []  # while another one reads

    def own(self, context: str, owner: Connection) -> None:
        """Send a connection what happens in a browser context from now on."""
        with self.lock:
            self._contexts[context] = owner

    def disown(self, context: str) -> None:
        """Drop what happens in a context that is disposed of."""
        with self.lock:
            owner = self._contexts.pop(context, None)
            for known in (self._targets, self._sessions):
                for id in [id for id, one in known.items() if one is owner]:
                    del known[id]

    def send(self, caller: Connection, message: Parameters) -> int:
        """Send a call; return its number. Raises SharedFault if the browser has ended."""
        with self._writing:
            self._number += 1
            self._callers[self._number] = caller
            data = json.dumps({"id": self._number, **message}).encode() + b"\0"
            try:
                while data:
                    data = data[os.write(self._process.writes, data) :]
            except (OSError, ValueError):
                raise self._crash() from None
            return self._number

    def receive(self, receiver: Connection, deadline: float) -> None:
        """Wait until a connection has mail, and read the pipe meanwhile unless another one does.

        Raises:
            EnvironmentFault: it has none at the deadline, or the browser has ended.
        """
        with self.lock:
            while self._reading and not receiver.mail:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise _hang()
                self._waiting.append(receiver)
                receiver.woken.wait(left)
                self._waiting.remove(receiver)
            if receiver.mail:
                return
            self._reading = True
        try:
            while not receiver.mail:
                self._read(deadline)
        finally:
            with self.lock:
                self._reading = False
                following = next((one for one in self._waiting if not one.mail), None)
                if following is not None:
                    following.woken.notify()

    def _read(self, deadline: float) -> None:
        """Read at least one message, and deliver it."""
        parts = [self._rest]
        while b"\0" not in parts[-1]:
            left = max(0.0, deadline - time.monotonic())
            data, ready = b"", True
            with contextlib.suppress(OSError, ValueError):  # it was closed
                ready = bool(select.select([self._process.reads], [], [], left)[0])
                data = os.read(self._process.reads, _CHUNK) if ready else b""
            if not ready:
                self._rest = b"".join(parts)
                raise _hang()
            if not data:
                raise self._crash()
            parts.append(data)
        *messages, self._rest = b"".join(parts).split(b"\0")
        found = [json.loads(message.decode()) for message in messages]  # no guess of the encoding
        with self.lock:
            for message in found:
                owner = self._owner(message)
                if owner is not None:
                    owner.mail.append(message)
                    owner.woken.notify()

    def _owner(self, message: Parameters) -> Connection | None:
        """Return whose message it is; None: it belongs to no world."""
        if "id" in message:
            return self._callers.pop(message["id"], None)
        found = message["params"]
        match message["method"]:
            case "Target.attachedToTarget":
                info = found["targetInfo"]
                owner = self._contexts.get(info.get("browserContextId", ""))
                if owner is not None:
                    self._sessions[found["sessionId"]] = self._targets[info["targetId"]] = owner
                return owner
            case "Target.detachedFromTarget":
                return self._sessions.pop(found["sessionId"], None)
            case "Browser.downloadWillBegin":
                return self._targets.get(found["frameId"])
        return self._sessions.get(message.get("sessionId", ""))

    def _crash(self) -> SharedFault:
        words = self._process.last_words()
        return SharedFault("crash", f"the browser ended: {words or 'it said nothing'}")


class Connection:
    """One world's part of a pipe; used by one thread at a time."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.mail: deque[Parameters] = deque()  # what the pipe has delivered
        self.woken = threading.Condition(pipe.lock)
        self._answers: dict[int, Parameters] = {}
        self._followed: dict[int, Callable[[Parameters], None]] = {}
        self.listeners: dict[str, Listener] = {}
        """By session; "" for what the browser reports about the world's context."""

    def send(self, method: str, session: str = "", **parameters: object) -> int:
        """Send a call and return its number, to wait for later."""
        message: Parameters = {"method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        return self._pipe.send(self, message)

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
        while not self.has(numbers):
            if until is not None and until():
                return []
            self._read(deadline)
        answers = [self._answers.pop(number) for number in numbers]
        for answer in answers:
            if "error" in answer:
                raise Refusal(str(answer["error"].get("message", answer["error"])))
        return [answer["result"] for answer in answers]

    def has(self, numbers: Sequence[int]) -> bool:
        """Return whether all of these calls have answers."""
        return all(number in self._answers for number in numbers)

    def wait_for(self, ready: Callable[[], bool], seconds: float | None = None) -> None:
        """Read until a condition holds that events bring about; raises like `call`."""
        deadline = time.monotonic() + (seconds or PATIENCE)
        while not ready():
            self._read(deadline)

    def _read(self, deadline: float) -> None:
        """Handle at least one message."""
        self._pipe.receive(self, deadline)
        while self.mail:
            self._dispatch(self.mail.popleft())

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


def _hang() -> EnvironmentFault:
    return EnvironmentFault("hang", "the browser does not answer")


def _ignore(answer: Parameters) -> None:
    pass
