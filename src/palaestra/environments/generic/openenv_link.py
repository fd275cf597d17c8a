"""A session with an OpenEnv server over its websocket, and the server's process where it is ours.

The protocol is OpenEnv's own: JSON messages `{"type": "reset" | "step", "data": …}` to `/ws`, each
answered by one of type `observation` or `error`; the schema of actions is at `/schema`. It is
spoken here with `websockets`, as the package's client would bring its server's packages along.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from palaestra.core.errors import EnvironmentFault, InputError, MissingSystemPart
from palaestra.environments.generic import openenv_server
from palaestra.environments.generic.openenv_description import Description

STARTING = 120.0  # seconds for an app to be imported and to listen
OPENING = 20.0  # seconds for a session to open
PATIENCE = 2.0  # seconds for a server to end by itself; then it is killed
LARGEST = 100 * 2**20  # bytes of a message, as in the package's client
REFUSED = "VALIDATION_ERROR"  # the action is not of the server's model, and nothing was done


class Refused(Exception):
    """The server does not take an action, in words for who acted."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server answers to a reset or a step."""

    observation: dict[str, Any]
    reward: float
    done: bool


class _Server:
    """The process of an app; it knows nothing of the link that holds it."""

    def __init__(self, description: Description) -> None:
        if not description.folder.is_dir():
            raise InputError(f"There is no folder '{description.folder}' to run an app in.")
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                [description.program, str(Path(openenv_server.__file__)), description.app],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                cwd=description.folder,
                env={**os.environ, **description.environment},
                start_new_session=True,  # what is typed at this terminal is not for it
            )
        except (FileNotFoundError, PermissionError):
            self.errors.close()
            raise MissingSystemPart(
                f"The interpreter '{description.program}' of an OpenEnv app is no program here; "
                "install it, or mend the description's 'python'."
            ) from None

    def port(self) -> int:
        """Where it listens.

        Raises:
            EnvironmentFault: it ends, or is mute for too long.
        """
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], STARTING)[0]:
            raise EnvironmentFault("hang", f"the app does not start within {STARTING:g} s")
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            raise EnvironmentFault("crash", "the app does not start")
        return int(line)

    def last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self.errors.seek(0)
            return self.errors.read()[-600:].decode(errors="replace").strip()
        return ""

    def end(self) -> None:
        """Let it end with its input; kill it where it does not."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self.errors.close()


class Link:
    """A session, from its opening to `close`."""

    def __init__(self, description: Description) -> None:
        """Start the server, or reach it, and open a session.

        Raises:
            InputError: there is no such interpreter, or no such folder.
            EnvironmentFault: it does not start, or does not speak the protocol.
        """
        self._limit = description.timeout
        self._server = None if description.url else _Server(description)
        self._end = weakref.finalize(self, self._server.end) if self._server else None
        self._session = contextlib.ExitStack()
        self._socket: ClientConnection | None = None
        try:
            root = description.url.rstrip("/")
            self.root = root or f"http://127.0.0.1:{self._server.port() if self._server else 0}"
            self._socket = self._opened()
        except EnvironmentFault as fault:
            raise self._fault(fault.kind, fault.detail) from fault
        except BaseException:
            self.close()
            raise

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the server's action model.

        Raises:
            EnvironmentFault: it has none.
        """
        try:
            answer = httpx.get(f"{self.root}/schema", timeout=self._limit, trust_env=self._far)
            found = answer.raise_for_status().json()["action"]
        except httpx.HTTPError as error:
            raise self._fault("crash", f"no schema: {error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise self._fault("rubbish", f"no schema: {error!r}") from error
        if not isinstance(found, dict):
            raise self._fault("rubbish", "the schema of actions is no object")
        return found

    def reset(self, arguments: Mapping[str, Any]) -> Seen:
        """Begin anew; raises EnvironmentFault where the server cannot."""
        try:
            return self._asked("reset", arguments)
        except Refused as why:
            raise self._fault("reset", str(why)) from None

    def step(self, action: Mapping[str, Any]) -> Seen:
        """Act.

        Raises:
            Refused: it is no action of the server's model.
            EnvironmentFault: the server is dead, mute, fails, or speaks rubbish; it is then closed.
        """
        return self._asked("step", action)

    def close(self) -> None:
        """End the session, and the server if it is ours; twice does no harm."""
        if self._socket is not None:
            with contextlib.suppress(OSError, WebSocketException):
                self._socket.send(json.dumps({"type": "close"}))
        self._socket = None
        self._session.close()
        if self._end is not None:
            self._end()

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _far(self) -> bool:
        """Whether a proxy of the surroundings may be needed to reach it."""
        return urlsplit(self.root).hostname not in ("127.0.0.1", "localhost", "::1")

    def _opened(self) -> ClientConnection:
        address = "ws" + self.root.removeprefix("http") + "/ws"
        try:
            opening: Any = connect(
                address,
                open_timeout=OPENING,
                close_timeout=PATIENCE,
                max_size=LARGEST,
                compression=None,
                ping_interval=None,  # an answer has its own time limit
                proxy=True if self._far else None,
            )
            return self._session.enter_context(opening)
        except TimeoutError as error:
            raise EnvironmentFault("hang", f"no session at {self.root}: no answer") from error
        except (OSError, WebSocketException) as error:
            raise EnvironmentFault("crash", f"no session at {self.root}: {error}") from error

    def _asked(self, kind: str, data: Mapping[str, Any]) -> Seen:
        if self._socket is None:
            raise EnvironmentFault("crash", f"{kind}: the session is over; reset the world")
        try:
            self._socket.send(json.dumps({"type": kind, "data": data}))
            answer = self._received(kind)
        except TimeoutError as error:
            raise self._fault("hang", f"{kind} took over {self._limit:g} s") from error
        except (OSError, WebSocketException) as error:
            raise self._fault("crash", f"{kind}: the server is gone ({error})") from error
        said = answer.get("data")
        if answer.get("type") == "error" and isinstance(said, dict):
            raise self._failed(kind, said)
        if answer.get("type") != "observation" or not isinstance(said, dict):
            raise self._fault("rubbish", f"{kind} was answered with {_short(answer)}")
        return self._seen(kind, said)

    def _received(self, kind: str) -> dict[str, Any]:
        assert self._socket is not None
        raw = self._socket.recv(timeout=self._limit)
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._fault("rubbish", f"{kind} was answered with {_short(raw)}")
        return answer

    def _failed(self, kind: str, said: dict[str, Any]) -> Exception:
        words = str(said.get("message", "it failed"))
        if said.get("code") == REFUSED:
            return Refused(_refusal(said.get("errors"), words))
        return self._fault(kind, f"the server failed: {words} ({said.get('code')})")

    def _seen(self, kind: str, said: dict[str, Any]) -> Seen:
        observation, reward = said.get("observation"), said.get("reward")
        done = said.get("done", False)
        number = isinstance(reward, (int, float)) and math.isfinite(reward)
        if not (isinstance(observation, dict) and isinstance(done, bool)):
            raise self._fault("rubbish", f"{kind} was answered with {_short(said)}")
        if reward is not None and not number:
            raise self._fault("rubbish", f"{kind} was answered with the reward {_short(reward)}")
        return Seen(observation, float(reward or 0.0), done)

    def _fault(self, kind: str, what: str) -> EnvironmentFault:
        """The fault, with the server's last words; ends it."""
        if self._server is not None and self._server.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.process.wait(0.2)  # one that dies says why a little later
        last = self._server.last_words() if self._server is not None else ""
        self.close()
        return EnvironmentFault(kind, what + (f"; its last words: {last}" if last else ""))


def _refusal(errors: Any, words: str) -> str:
    """Which field is wrong, and how, as pydantic says it."""
    told = []
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, dict):
            place = ".".join(map(str, error.get("loc", ())))
            told.append(f"{place}: {error.get('msg', 'wrong')}" if place else str(error.get("msg")))
    return "; ".join(told) or words


def _short(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 200 else text[:198] + " …"
