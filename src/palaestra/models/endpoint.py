"""An endpoint: a server that is asked over HTTP, with patience.

What a server can do wrong is either waited out (busy, failing, hanging, unreachable: a bounded
number of attempts, each bounded in time) or becomes one clear `InfrastructureFault`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError, RequestRefused
from palaestra.models.pace import Ticket, Verdict

_TOO_LONG = re.compile(
    r"context.?length|context.?window|context.?size|maximum context|prompt is too long", re.I
)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance", re.I)
_BUSY = frozenset({408, 409, 425, 429})  # worth another attempt, as are 500 and above
_OVERLOADED = frozenset({408, 429, 503, 504, 529})  # worth fewer requests at once


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a server; all times in seconds."""

    attempts: int = 6
    timeout: float = 120.0  # of one attempt, from the request to the last byte of the answer
    first_wait: float = 0.5  # before the second attempt; doubled each time, with jitter
    longest_wait: float = 60.0  # a server that asks for a longer pause is given up


class Endpoint:
    """A server at a base URL."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        patience: Patience = Patience(),
        socket: Path | None = None,
        serving: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """An endpoint; nothing is sent yet.

        Args:
            name: what faults call it.
            url: base URL of the API.
            key: the environment variable that holds the API key; None sends no key.
            headers: what to send with every request besides.
            patience: how long to bear with the server.
            socket: the Unix socket to reach it by, where it listens on one.
            serving: where the server is restarted when it ends: comes back as soon as it serves
                again, and raises InfrastructureFault if it never will. It is waited for between
                two attempts.

        Raises:
            InputError: the environment variable is not set.
        """
        self.name, self._url = name, url.rstrip("/")
        self._headers = bearer(api_key(key)) | dict(headers or {})
        self._patience, self._socket, self._serving = patience, socket, serving
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered = False  # any request yet

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None

    async def post(
        self, path: str, request: Mapping[str, Any], ticket: Ticket | None = None
    ) -> httpx.Response:
        """The first good answer within the bounds of patience.

        Args:
            path: below the base URL.
            request: what is sent, as JSON.
            ticket: its place in the queue of the server's pace; None waits for no turn.

        Raises:
            ContextTooLong: the server says that the prompt is.
            RequestRefused: it takes other requests, and not this one.
            InfrastructureFault: there is none.
        """
        patience = self._patience
        for attempt in range(1, patience.attempts + 1):
            wait = min(patience.first_wait * 2 ** (attempt - 1), patience.longest_wait)
            wait *= random.uniform(0.5, 1.0)
            try:
                response = await self._attempt(path, request, ticket)
            except TimeoutError:
                kind, problem = "timeout", f"did not answer within {patience.timeout:g} s"
            except httpx.RequestError as error:
                kind, problem = "connection", f"could not be reached ({_reason(error)})"
            else:
                if response.is_success:
                    self._answered = True
                    return response
                if not _worth_another(response):
                    raise self._refusal(response)
                kind, problem = "server", f"answered {_status(response)}"
                asked = _retry_after(response)
                if asked > patience.longest_wait:
                    problem += f" and asked for a pause of {asked:.0f} s; try again later"
                    raise self.fault(kind, problem)
                wait += asked  # on top, so that many sessions do not come back at once
            if attempt < patience.attempts:
                await asyncio.sleep(wait)
                if self._serving is not None:
                    await self._serving()
        raise self.fault(
            kind, f"{problem}, {patience.attempts} times in a row; check that the server is well"
        )

    async def ask(self, path: str, request: Mapping[str, Any]) -> Any:
        """The JSON of the first good answer; raises like `post`."""
        return self.read(await self.post(path, request))

    def read(self, response: httpx.Response) -> Any:
        """The JSON of an answer.

        Raises:
            InfrastructureFault: it is none.
        """
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise self.fault(
                "answer",
                f"answered something that is not JSON ({_excerpt(response.text)}); "
                "check that the URL is the base of the API",
            ) from None

    def unusable(self, answer: Any, protocol: str) -> InfrastructureFault:
        """What to raise for JSON that lacks what the protocol promises."""
        return self.fault(
            "answer",
            f"answered without a usable choice ({_excerpt(json.dumps(answer))}); "
            f"check that the server speaks {protocol}",
        )

    async def _attempt(
        self, path: str, request: Mapping[str, Any], ticket: Ticket | None
    ) -> httpx.Response:
        """One answer, good or bad; the pace learns what it says about the server."""
        if ticket is None:
            return await self._send(path, request)
        await ticket.turn()
        verdict, pause = Verdict.NEITHER, 0.0
        try:
            response = await self._send(path, request)
            if response.is_success:
                verdict = Verdict.GOOD
            elif response.status_code in _OVERLOADED and _worth_another(response):
                verdict = Verdict.OVERLOADED
                asked = _retry_after(response)
                pause = asked if asked <= self._patience.longest_wait else 0.0
            return response
        except TimeoutError:
            verdict = Verdict.OVERLOADED
            raise
        finally:
            ticket.leave(verdict, pause)

    async def _send(self, path: str, request: Mapping[str, Any]) -> httpx.Response:
        async with asyncio.timeout(self._patience.timeout):
            return await self._open_client().post(path, json=request)

    def _open_client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to one event loop
            self._client = httpx.AsyncClient(
                base_url=self._url,
                headers=self._headers,
                timeout=None,  # an attempt is bounded as a whole
                transport=httpx.AsyncHTTPTransport(
                    limits=httpx.Limits(max_connections=None),
                    uds=None if self._socket is None else str(self._socket),
                ),
            )
            self._loop = loop
        return self._client

    def _refusal(self, response: httpx.Response) -> ContextTooLong | InfrastructureFault:
        """What an answer means that no further attempt would change."""
        if response.status_code in (400, 413, 422) and _TOO_LONG.search(response.text):
            return ContextTooLong(
                f"The conversation does not fit the context of {self.name}: "
                f"{_excerpt(response.text)}"
            )
        remedy = {
            401: "check the API key: name its environment variable after '#' in the model's name",
            403: "check that the API key may use this model",
            404: "check the model's name and that the URL is the base of the API",
            429: "check the account's credit",
        }.get(response.status_code, "check that the server accepts such requests")
        fault = self.fault("refused", f"answered {_status(response)}; {remedy}")
        if self._answered and response.status_code in (400, 413, 422):
            return RequestRefused(fault.kind, fault.detail)
        return fault

    def fault(self, kind: str, problem: str) -> InfrastructureFault:
        """What to raise for a problem, told of this server."""
        return InfrastructureFault(kind, f"{self.name} {problem}")


def api_key(variable: str | None) -> str | None:
    """The API key in that environment variable; None without one.

    Raises:
        InputError: the variable is not set.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(
            f"The environment variable '{variable}', which should hold an API key, is not set; "
            f"set it with: export {variable}=…"
        )
    return key


def bearer(key: str | None) -> dict[str, str]:
    """The header by which most servers know an API key."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def _worth_another(response: httpx.Response) -> bool:
    """Whether the same request may do better later."""
    status = response.status_code
    if status == 429 and _NO_CREDIT.search(response.text):
        return False
    return status in _BUSY or status >= 500


def _retry_after(response: httpx.Response) -> float:
    """How many seconds the server asks to wait; 0 if not at all.

    `retry-after-ms` (OpenAI, Azure) is finer and goes first; `Retry-After` is a number of
    seconds or a date (RFC 9110, 10.2.3).
    """
    fine, value = (
        response.headers.get("retry-after-ms", ""),
        response.headers.get("Retry-After", ""),
    )
    for number, unit in ((fine, 1000), (value, 1)):
        try:
            return max(0.0, float(number) / unit)
        except ValueError:
            continue
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _status(response: httpx.Response) -> str:
    return f"{response.status_code} {response.reason_phrase} ({_excerpt(response.text)})"


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return f"'{text[:200]}…'" if len(text) > 200 else f"'{text}'"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
