"""A session with an OpenEnv server over its websocket, and the server's process if we start it.

The protocol is OpenEnv's own: JSON messages `{"type": "reset" | "step", "data": …}` to `/ws`, each
answered by one of type `observation` or `error`; the schema of actions is at `/schema`. This client
uses `websockets`, because the package's client depends on the server's packages.
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
from palaestra.environments.families.openenv import server
from palaestra.environments.families.openenv.description import Description

STARTING = 120.0  # seconds for an app to be imported and to listen
OPENING = 20.0  # seconds for a session to open
PATIENCE = 2.0  # seconds for a server to exit by itself before it is killed
LARGEST = 100 * 2**20  # bytes of a message, as in the package's client
REFUSED = "VALIDATION_ERROR"  # the action does not fit the server's model; the state is unchanged


class Refused(Exception):
    """The server rejects an action; the message is for the agent."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A server's answer to a reset or a step."""

    observation: dict[str, Any]
    reward: float
    done: bool


class _Server:
    """The process of an app; holds no reference to its `Link`."""

    def __init__(self, description: Description) -> None:
        if not description.folder.is_dir():
            raise InputError(
                f"'{description.folder}' is no folder to run an app in; "
                "correct the description's `folder`."
            )
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                [description.program, str(Path(server.__file__)), description.app],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                cwd=description.folder,
                env={**os.environ, **description.environment},
                start_new_session=True,  # keep the terminal's signals from it
            )
        except (FileNotFoundError, PermissionError):
            self.errors.close()
            raise MissingSystemPart(
                f"The interpreter '{description.program}' of an OpenEnv app cannot be run here; "
                "install it, or correct the description's 'python'."
            ) from None

    def port(self) -> int:
        """Wait for the app to start and return its port.

        Raises:
            EnvironmentFault: it exits, or does not report a port in time.
        """
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], STARTING)[0]:
            raise EnvironmentFault("hang", f"the app does not start within {STARTING:g} s")
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            raise EnvironmentFault("crash", "the app does not start")
        return int(line)

    def last_output(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self.errors.seek(0)
            return self.errors.read()[-600:].decode(errors="replace").strip()
        return ""

    def end(self) -> None:
        """Close its input, which ends it; kill it if it does not exit."""
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
    """A session with the server of a description, open until `close`."""

    def __init__(self, description: Description) -> None:
        """Start the server, or connect to it, and open a session.

        Raises:
            InputError: the interpreter or the folder does not exist.
            EnvironmentFault: the server does not start, or does not follow the protocol.
        """
        self._limit = description.timeout
        self._server = None if description.url else _Server(description)
        self._end = weakref.finalize(self, self._server.end) if self._server else None
        self._session = contextlib.ExitStack()
        self._socket: ClientConnection | None = None
        try:
            root = description.url.rstrip("/")
            self.root = root or f"http://127.0.0.1:{self._server.port() if self._server else 0}"
            self._socket = self._open()
        except EnvironmentFault as fault:
            raise self._fault(fault.kind, fault.detail) from fault
        except BaseException:
            self.close()
            raise

    def schema(self) -> dict[str, Any]:
        """Fetch the JSON schema of the server's action model.

        Raises:
            EnvironmentFault: the server does not return one.
        """
        try:
            answer = httpx.get(f"{self.root}/schema", timeout=self._limit, trust_env=self._far)
            found = answer.raise_for_status().json()["action"]
        except httpx.HTTPError as error:
            raise self._fault("crash", f"no schema: {error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise self._fault("rubbish", f"no schema: {error!r}") from error
        if not isinstance(found, dict):
            raise self._fault("rubbish", "the schema of actions is not an object")
        return found

    def reset(self, arguments: Mapping[str, Any]) -> Seen:
        """Reset the server's environment; raise EnvironmentFault if that fails."""
        try:
            return self._request("reset", arguments)
        except Refused as problem:
            raise self._fault("reset", str(problem)) from None

    def step(self, action: Mapping[str, Any]) -> Seen:
        """Act.

        Raises:
            Refused: the action does not fit the server's model.
            EnvironmentFault: the server died, does not answer, fails, or violates the protocol;
                the session is then closed.
        """
        return self._request("step", action)

    def close(self) -> None:
        """End the session, and the server if we started it; idempotent."""
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
        """Whether the proxy of the environment variables may be needed to reach the server."""
        return urlsplit(self.root).hostname not in ("127.0.0.1", "localhost", "::1")

    def _open(self) -> ClientConnection:
        address = "ws" + self.root.removeprefix("http") + "/ws"
        try:
            opening: Any = connect(
                address,
                open_timeout=OPENING,
                close_timeout=PATIENCE,
                max_size=LARGEST,
                compression=None,
                ping_interval=None,  # each answer has its own time limit
                proxy=True if self._far else None,
            )
            return self._session.enter_context(opening)
        except TimeoutError as error:
            raise EnvironmentFault("hang", f"no session at {self.root}: no answer") from error
        except (OSError, WebSocketException) as error:
            raise EnvironmentFault("crash", f"no session at {self.root}: {error}") from error

    def _request(self, kind: str, data: Mapping[str, Any]) -> Seen:
        if self._socket is None:
            raise EnvironmentFault("crash", f"{kind}: the session is over; reset the world")
        try:
            self._socket.send(json.dumps({"type": kind, "data": data}))
            answer = self._receive(kind)
        except TimeoutError as error:
            raise self._fault("hang", f"{kind} took over {self._limit:g} s") from error
        except (OSError, WebSocketException) as error:
            raise self._fault("crash", f"{kind}: the server is gone ({error})") from error
        body = answer.get("data")
        if answer.get("type") == "error" and isinstance(body, dict):
            raise self._error(kind, body)
        if answer.get("type") != "observation" or not isinstance(body, dict):
            raise self._fault("rubbish", f"{kind} was answered with {_short(answer)}")
        return self._parse(kind, body)

    def _receive(self, kind: str) -> dict[str, Any]:
        assert self._socket is not None
        raw = self._socket.recv(timeout=self._limit)
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._fault("rubbish", f"{kind} was answered with {_short(raw)}")
        return answer

    def _error(self, kind: str, body: dict[str, Any]) -> Exception:
        message = str(body.get("message", "it failed"))
        if body.get("code") == REFUSED:
            return Refused(_refusal(body.get("errors"), message))
        return self._fault(kind, f"the server failed: {message} ({body.get('code')})")

    def _parse(self, kind: str, body: dict[str, Any]) -> Seen:
        observation, reward = body.get("observation"), body.get("reward")
        done = body.get("done", False)
        number = isinstance(reward, (int, float)) and math.isfinite(reward)
        if not (isinstance(observation, dict) and isinstance(done, bool)):
            raise self._fault("rubbish", f"{kind} was answered with {_short(body)}")
        if reward is not None and not number:
            raise self._fault("rubbish", f"{kind} was answered with the reward {_short(reward)}")
        return Seen(observation, float(reward or 0.0), done)

    def _fault(self, kind: str, what: str) -> EnvironmentFault:
        """Close the session and return the fault, with the end of the server's stderr."""
        if self._server is not None and self._server.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.process.wait(0.2)  # a dying process writes its reason a little later
        last = self._server.last_output() if self._server is not None else ""
        self.close()
        return EnvironmentFault(kind, what + (f"; its last output: {last}" if last else ""))


def _refusal(errors: Any, message: str) -> str:
    """List the wrong fields with pydantic's messages; without any, return `message`."""
    problems = []
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, dict):
            place = ".".join(map(str, error.get("loc", ())))
            problem = str(error.get("msg", "wrong")) if place else str(error.get("msg"))
            problems.append(f"{place}: {problem}" if place else problem)
    return "; ".join(problems) or message


def _short(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 200 else text[:198] + " …"
