"""A remote model: any server that speaks OpenAI's chat-completions protocol, by URL.

What a server can do wrong is either waited out (busy, failing, hanging, unreachable: a bounded
number of attempts, each bounded in time) or becomes one clear `InfrastructureFault`: the episode
then has no result, and the run goes on.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError
from palaestra.core.message import Message
from palaestra.core.model import Finish, Generation, Model, Prompt

_NAME = re.compile(r"openai:(?P<model>.+?)@(?P<url>https?://[^#]+)(?:#(?P<key>[A-Za-z_]\w*))?")
_TOO_LONG = re.compile(
    r"context.?length|context.?window|context.?size|maximum context|prompt is too long", re.I
)
_BUSY = frozenset({408, 409, 425, 429})  # worth another attempt, as are 500 and above


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a server; all times in seconds."""

    attempts: int = 6
    timeout: float = 120.0  # of one attempt, from the request to the last byte of the answer
    first_wait: float = 0.5  # before the second attempt; doubled each time, with jitter
    longest_wait: float = 60.0  # a server that asks for a longer pause is given up


class RemoteModel(Model):
    """A model behind a URL. Its tokens are unknown, so it can be evaluated but not trained."""

    def __init__(
        self,
        model: str,
        url: str,
        *,
        key: str | None = None,
        logprobs: bool = False,
        patience: Patience = Patience(),
    ) -> None:
        """A model of the server at `url`.

        Args:
            model: the model's name on the server.
            url: base URL of the API, usually ending in `/v1`.
            key: the environment variable that holds the API key; None sends no key.
            logprobs: whether to ask for the log-probabilities of the reply.
            patience: how long to bear with the server.

        Raises:
            InputError: the environment variable is not set.
        """
        self.name = f"openai:{model}@{url}"
        self._model, self._url = model, url.rstrip("/")
        self._headers = _authorization(key)
        self._logprobs = logprobs
        self._patience = patience
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def generate(self, prompt: Prompt) -> Generation:
        started = time.monotonic()
        response = await self._post(self._request(prompt))
        return self._generation(response, time.monotonic() - started)

    async def close(self) -> None:
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None

    # ── the request ──────────────────────────────────────────────────────────

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [_as_json(message) for message in prompt.messages],
            "temperature": prompt.sampling.temperature,
            "max_tokens": prompt.sampling.max_tokens,
            "seed": prompt.seed & 0x7FFFFFFF,  # several servers take no more than 31 bits
        }
        if prompt.sampling.stop:
            request["stop"] = list(prompt.sampling.stop)
        if self._logprobs:
            request["logprobs"] = True
        return request

    async def _post(self, request: Mapping[str, Any]) -> httpx.Response:
        """The first good answer within the bounds of patience."""
        patience = self._patience
        for attempt in range(1, patience.attempts + 1):
            wait = min(patience.first_wait * 2 ** (attempt - 1), patience.longest_wait)
            wait *= random.uniform(0.5, 1.0)
            try:
                async with asyncio.timeout(patience.timeout):
                    response = await self._open_client().post("/chat/completions", json=request)
            except TimeoutError:
                kind, problem = "timeout", f"did not answer within {patience.timeout:g} s"
            except httpx.RequestError as error:
                kind, problem = "connection", f"could not be reached ({_reason(error)})"
            else:
                if response.is_success:
                    return response
                if response.status_code not in _BUSY and response.status_code < 500:
                    raise self._refusal(response)
                kind, problem = "server", f"answered {_status(response)}"
                asked = _retry_after(response)
                if asked > patience.longest_wait:
                    problem += f" and asked for a pause of {asked:.0f} s; try again later"
                    raise self._fault(kind, problem)
                wait += asked  # on top, so that many sessions do not come back at once
            if attempt < patience.attempts:
                await asyncio.sleep(wait)
        raise self._fault(
            kind, f"{problem}, {patience.attempts} times in a row; check that the server is well"
        )

    def _open_client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to one event loop
            self._client = httpx.AsyncClient(
                base_url=self._url,
                headers=self._headers,
                timeout=None,  # an attempt is bounded as a whole
                limits=httpx.Limits(max_connections=None),
            )
            self._loop = loop
        return self._client

    # ── the answer ───────────────────────────────────────────────────────────

    def _generation(self, response: httpx.Response, seconds: float) -> Generation:
        try:
            answer = response.json()
        except ValueError:
            raise self._fault(
                "answer",
                f"answered something that is not JSON ({_excerpt(response)}); "
                "check that the URL is the base of an OpenAI-compatible API",
            ) from None
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"]
            finish = Finish.LENGTH if choice.get("finish_reason") == "length" else Finish.STOP
            if not isinstance(text, str | None):
                raise TypeError("content is not a text")
            logprobs = tuple(
                float(token["logprob"])
                for token in (choice.get("logprobs") or {}).get("content") or ()
            )
            prompt_tokens = int((answer.get("usage") or {}).get("prompt_tokens") or 0)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise self._fault(
                "answer",
                f"answered without a usable choice ({_excerpt(response)}); "
                "check that the server speaks the chat-completions protocol",
            ) from None
        return Generation(
            text=text or "",
            tokens=(),
            logprobs=logprobs,
            finish=finish,
            policy=self.name,
            version=0,
            prompt_tokens=prompt_tokens,
            computed_tokens=prompt_tokens,
            seconds=seconds,
        )

    def _refusal(self, response: httpx.Response) -> ContextTooLong | InfrastructureFault:
        """What an answer means that no further attempt would change."""
        if response.status_code in (400, 413, 422) and _TOO_LONG.search(response.text):
            return ContextTooLong(
                f"The conversation does not fit the context of {self.name}: {_excerpt(response)}"
            )
        remedy = {
            401: "check the API key: name its environment variable after '#' in the model's name",
            403: "check that the API key may use this model",
            404: "check the model's name and that the URL is the base of the API",
        }.get(response.status_code, "check that the server accepts such requests")
        return self._fault("refused", f"answered {_status(response)}; {remedy}")

    def _fault(self, kind: str, problem: str) -> InfrastructureFault:
        return InfrastructureFault(kind, f"{self.name} {problem}")


def parse_remote(name: str) -> RemoteModel:
    """The model of a name such as `openai:qwen3@http://localhost:8000/v1#API_KEY`.

    The part after `#` names the environment variable that holds the API key. Without it no key is
    sent: a key never goes to a URL for which it was not named.

    Raises:
        InputError: the name has another form, or the variable is not set.
    """
    match = _NAME.fullmatch(name)
    if match is None or not _has_host(match["url"]):
        raise InputError(
            f"'{name}' names no remote model; write openai:MODEL@URL, for example "
            "openai:qwen3@http://localhost:8000/v1, and #VARIABLE behind it where the environment "
            "variable VARIABLE holds an API key."
        )
    return RemoteModel(match["model"], match["url"], key=match["key"])


def _has_host(url: str) -> bool:
    try:
        return bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False


def _authorization(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(
            f"The environment variable '{variable}', which should hold an API key, is not set; "
            f"set it with: export {variable}=…"
        )
    return {"Authorization": f"Bearer {key}"}


def _as_json(message: Message) -> dict[str, str]:
    # A tool message of the protocol must name the call that it answers; ours are plain words.
    return {
        "role": "user" if message.role == "tool" else message.role,
        "content": message.content,
    }


def _retry_after(response: httpx.Response) -> float:
    """How many seconds the server asks to wait: given as a number or as a date; 0 if not at all."""
    value = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _status(response: httpx.Response) -> str:
    return f"{response.status_code} {response.reason_phrase} ({_excerpt(response)})"


def _excerpt(response: httpx.Response) -> str:
    text = " ".join(response.text.split())
    return f"'{text[:200]}…'" if len(text) > 200 else f"'{text}'"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
