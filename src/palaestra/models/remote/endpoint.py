"""An endpoint: a server that is queried over HTTP, with retries.

A server that is busy, failing, hanging or unreachable is retried: a bounded number of attempts,
each bounded in time. Any other failure becomes one clear `InfrastructureFault`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from palaestra.core.errors import InfrastructureFault, InputError
from palaestra.models.remote.status_errors import (
    LONGEST_PAUSE,
    cause,
    quote,
    refused_error,
    retry_after,
    retryable,
    status_line,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long to retry; all times in seconds."""

    attempts: int = 6
    timeout: float = 120.0  # of one attempt, from the request to the last byte of the response
    first_wait: float = 0.5  # before the second attempt; doubled each time, with jitter
    longest_wait: float = LONGEST_PAUSE  # a longer pause that the server asks for is an error


class Endpoint:
    """A server at a base URL."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        key: str | None = None,
        token: str | None = None,
        retries: RetryPolicy = RetryPolicy(),
        socket: Path | None = None,
        serving: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Describe the endpoint; nothing is sent yet.

        Args:
            name: its name in error messages.
            url: base URL of the API.
            key: the environment variable that holds the API key; None sends no key.
            token: a key that is in no variable: one of this run.
            retries: how often and how long to retry.
            socket: the Unix socket that the server listens on; None uses the URL's host.
            serving: for a server that is restarted when it ends: returns as soon as it serves
                again, and raises InfrastructureFault if it never will. It is awaited between
                two attempts.

        Raises:
            InputError: the environment variable is not set.
        """
        self.name, self._url = name, url.rstrip("/")
        secret = token or api_key(key)
        self._headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        self._retries, self._socket, self._serving = retries, socket, serving
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered = False  # any request yet

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None

    async def post(self, path: str, request: Mapping[str, Any]) -> httpx.Response:
        """Send a request and return the first successful response.

        Args:
            path: below the base URL.
            request: the body, sent as JSON.

        Raises:
            ContextTooLong: the server says that the prompt is too long.
            RequestRefused: the server accepts other requests, but not this one.
            InfrastructureFault: no attempt succeeded.
        """
        retries = self._retries
        for attempt in range(1, retries.attempts + 1):
            wait = min(retries.first_wait * 2 ** (attempt - 1), retries.longest_wait)
            wait *= random.uniform(0.5, 1.0)
            try:
                response = await self._send(path, request)
            except TimeoutError:
                kind, problem = "timeout", f"did not answer within {retries.timeout:g} s"
            except httpx.RequestError as error:
                kind, problem = "connection", f"could not be reached ({cause(error)})"
            else:
                if response.is_success:
                    self._answered = True
                    return response
                status, reason, text = response.status_code, response.reason_phrase, response.text
                if not retryable(status, text):
                    raise refused_error(self.name, status, reason, text, answered=self._answered)
                kind, problem = "server", f"answered {status_line(status, reason, text)}"
                asked = retry_after(response.headers)
                if asked > retries.longest_wait:
                    problem += f" and asked for a pause of {asked:.0f} s; try again later"
                    raise self.fault(kind, problem)
                wait += asked  # on top, so that sessions do not all retry at once
            if attempt < retries.attempts:
                await asyncio.sleep(wait)
                if self._serving is not None:
                    await self._serving()
        raise self.fault(
            kind, f"{problem}, {retries.attempts} times in a row; check that the server is well"
        )

    async def ask(self, path: str, request: Mapping[str, Any]) -> Any:
        """Return the JSON of the first successful response; raise like `post`."""
        return self.read(await self.post(path, request))

    def read(self, response: httpx.Response) -> Any:
        """Return the JSON of a response.

        Raises:
            InfrastructureFault: it is not JSON.
        """
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise self.fault(
                "answer",
                f"answered something that is not JSON ({quote(response.text)}); "
                "check that the URL is the base of the API",
            ) from None

    def unusable(self, answer: Any, protocol: str) -> InfrastructureFault:
        """Return the error for JSON that lacks what the protocol promises."""
        return self.fault(
            "answer",
            f"answered without a usable choice ({quote(json.dumps(answer))}); "
            f"check that the server speaks {protocol}",
        )

    async def _send(self, path: str, request: Mapping[str, Any]) -> httpx.Response:
        async with asyncio.timeout(self._retries.timeout):
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

    def fault(self, kind: str, problem: str) -> InfrastructureFault:
        """Return the error for a problem of this server."""
        return InfrastructureFault(kind, f"{self.name} {problem}")


def api_key(variable: str | None, user: str = "") -> str | None:
    """Return the API key in that environment variable; None without a variable.

    Args:
        variable: its name.
        user: what needs the key, for the error message.

    Raises:
        InputError: the variable is not set.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(
            f"The environment variable '{variable}', which should hold "
            f"{f'the API key of {user}' if user else 'an API key'}, is not set; set it with: "
            f"export {variable}=…"
        )
    return key
