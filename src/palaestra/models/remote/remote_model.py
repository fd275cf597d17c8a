"""A remote model: any server that implements one of the provider protocols, through its SDK.

The SDK manages connections, retries and streams. All sessions that use one server share its rate
limiter. Replies can be stored in a response cache. Names of remote models, with their options, are
in `remote_names`.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError
from palaestra.core.message import ToolCall
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.models.remote.endpoint import api_key
from palaestra.models.remote.openai_protocol import COMPATIBLE, OPENAI
from palaestra.models.remote.provider_protocol import UNUSABLE, Connection, Protocol, RemoteReply
from palaestra.models.remote.rate_limiter import RateLimiter, Traffic, expected_tokens
from palaestra.models.remote.refused_parameters import remembered
from palaestra.models.remote.response_cache import ResponseCache, request_key
from palaestra.models.remote.status_errors import (
    LONGEST_PAUSE,
    cause,
    quote,
    refused_error,
    retry_after,
    retryable,
    status_line,
)

if TYPE_CHECKING:
    import httpx2

    from palaestra.models.remote.paced_transport import Attempts

ACCOUNT_HEADERS = ("OpenAI-Organization", "OpenAI-Project")  # for the provider's own servers
KEY_HEADERS = ("Authorization", "X-Api-Key", "api-key")
ATTEMPTS = 6
TIMEOUT = 600.0  # seconds; the SDKs' default
STOPS = ("stop", "stop_sequences")  # the protocols' names for stop strings
TYPICAL = 512  # tokens of a reply that the rate limiter expects before it has seen one


class RemoteModel(Model):
    """A model behind a server; its tokens are unknown, so it can be evaluated but not trained."""

    native_tools = True
    max_tokens = None  # the server knows its own limit

    def __init__(
        self,
        model: str,
        url: str | None = None,
        *,
        protocol: Protocol | None = None,
        key: str | None = None,
        logprobs: bool = False,
        stream: bool | None = None,
        attempts: int = ATTEMPTS,
        timeout: float = TIMEOUT,
        limiter: RateLimiter | None = None,
        cache: ResponseCache | None = None,
    ) -> None:
        """Describe the model; nothing is sent yet.

        Args:
            model: the model's name on the server.
            url: base URL of the API, usually ending in `/v1`; None is the provider's own.
            protocol: the provider protocol; None is OpenAI's, which most servers implement.
            key: the environment variable that holds the API key; None sends no key.
            logprobs: whether to ask for the log-probabilities of the reply.
            stream: whether replies are streamed; None is the protocol's default.
            attempts: attempts before giving up.
            timeout: seconds to wait for one response; of a stream, for its beginning and then for
                each event.
            limiter: the rate limiter; None creates one without limits of its own.
            cache: the response cache; None stores nothing.

        Raises:
            InputError: the environment variable is not set, or the protocol has no
                log-probabilities.
            MissingPackage: the SDK is not installed.
        """
        self._protocol = protocol = protocol or (COMPATIBLE if url else OPENAI)
        if logprobs and not protocol.logprobs:
            raise InputError(
                f"{protocol.title[0].upper()}{protocol.title[1:]} has no log-probabilities; "
                f"omit 'logprobs' for the model '{model}'."
            )
        protocol.check_package()
        self.name = f"{protocol.scheme}:{model}" + (f"@{url}" if url else "")
        self._model, self._url, self._logprobs = model, url, logprobs
        self._key, self._secret = key, api_key(key)
        self._stream = protocol.streams if stream is None else stream
        self._attempts, self._timeout = attempts, timeout
        self._limiter = limiter or RateLimiter()
        self._cache = cache
        self._refused = remembered(self.name)
        self._answered = False  # whether any request has succeeded
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limit: asyncio.Task[int | None] | None = None

    @property
    def traffic(self) -> Traffic:
        """Counters of the requests that this process has sent to the server."""
        return self._limiter.traffic

    async def generate(self, prompt: Prompt) -> Generation:
        """Generate as `Model.generate` says; `seconds` is the time of the successful attempt."""
        request = self._protocol.request(self._model, prompt, logprobs=self._logprobs)
        if self._cache is None:
            reply, seconds = await self._ask(request, prompt)
            return self._generation(reply, reply.prompt_tokens - reply.cached_tokens, seconds)
        return await self._recall(self._cache, request, prompt)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()
        if self._cache is not None:
            await self._cache.close()

    # ── requests ─────────────────────────────────────────────────────────────

    async def _recall(
        self, cache: ResponseCache, request: dict[str, Any], prompt: Prompt
    ) -> Generation:
        """Return the cached reply; if there is none, ask the server and cache its reply."""
        started = time.monotonic()
        key = request_key(self._protocol.title, self._model, self._url or "", request, prompt.seed)
        kept = await cache.get(key)
        if kept is not None:
            return self._generation(_restored(kept), 0, time.monotonic() - started)
        reply, seconds = await self._ask(request, prompt)
        computed = reply.prompt_tokens - reply.cached_tokens
        kept = await cache.put(
            key, asdict(reply)
        )  # only now, so that unusable replies are not cached
        return self._generation(_restored(kept), computed, seconds)

    async def _ask(self, request: dict[str, Any], prompt: Prompt) -> tuple[RemoteReply, float]:
        """Return the server's reply, and the seconds that it took."""
        from palaestra.models.remote.paced_transport import attempts

        client = self._open_client()
        if prompt.sampling.max_tokens is None:
            request = request | await self._own_limit(client)
        ticket = self._limiter.arrive(self._expected(request, prompt))
        with attempts(ticket) as made:
            answer = await self._send(client, request, made)
            seconds = time.monotonic() - made.started
        try:
            reply = self._protocol.reply(answer, prompt.tools)
        except UNUSABLE:
            raise self._unusable(answer) from None
        self._answered = True
        ticket.account(reply.prompt_tokens, reply.sampled_tokens)
        return self._cut(reply, prompt.sampling.stop), seconds

    async def _send(self, client: Any, request: Mapping[str, Any], made: Attempts) -> Any:
        """Send a request without refused parameters; return the SDK's object for the response."""
        import httpx2

        while True:
            sent = self._protocol.accepted(request, self._refused.names, stream=self._stream)
            try:
                return await self._protocol.send(client, sent, stream=self._stream)
            except (self._protocol.sdk.APIError, httpx2.TransportError) as error:
                if self._refuses_a_parameter(error, sent):
                    continue
                if not self._broke_off(error) or made.made >= self._attempts:
                    raise self._fault(error, made) from None
                await asyncio.sleep(random.uniform(0.25, 0.5) * made.made)
            except (ValueError, RecursionError) as error:
                raise self._infrastructure(
                    "answer",
                    f"answered something that is not JSON ({quote(getattr(error, 'doc', ''))}); "
                    "check that the URL is the base of the API",
                ) from None

    def _refuses_a_parameter(self, error: Exception, sent: Mapping[str, Any]) -> bool:
        status = _status(error)
        if status is None:
            return False
        protocol, text = self._protocol, _response(error).text
        return self._refused.learn(status, text, protocol.parameters(sent), protocol.optional)

    def _broke_off(self, error: Exception) -> bool:
        """Return whether a stream failed after it had begun; the SDKs do not retry that."""
        return self._stream and _status(error) is None

    async def _own_limit(self, client: Any) -> dict[str, int]:
        """Return the model's own reply limit if the protocol requires one; queried once."""
        if self._limit is None:
            self._limit = asyncio.create_task(self._protocol.limit(client, self._model))
        limit = await asyncio.shield(self._limit)
        return {} if limit is None else {"max_tokens": limit}

    def _open_client(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to one event loop
            import httpx2

            from palaestra.models.remote.paced_transport import PacedTransport

            withheld: tuple[str, ...] = () if self._secret else KEY_HEADERS
            if self._url:
                withheld += ACCOUNT_HEADERS
            http = httpx2.AsyncClient(
                transport=PacedTransport(self._timeout, withheld),
                timeout=self._timeout,
                follow_redirects=True,
            )
            connection = Connection(
                self._url, self._secret, self._attempts - 1, self._timeout, http
            )
            self._client = self._protocol.client(connection)
            self._loop, self._limit = loop, None
        return self._client

    def _expected(self, request: Mapping[str, Any], prompt: Prompt) -> int:
        if self._limiter.limits.tpm is None:
            return 0
        seen = self._limiter.traffic
        usual = seen.sampled_tokens // seen.good if seen.sampled_tokens else TYPICAL
        text = json.dumps(request, ensure_ascii=False)
        return expected_tokens(text, prompt.sampling.max_tokens or usual)

    # ── responses ────────────────────────────────────────────────────────────

    def _cut(self, reply: RemoteReply, stops: Sequence[str]) -> RemoteReply:
        """Cut the reply at its first stop string if the server does not stop there itself."""
        if not self._refused.names.intersection(STOPS):
            return reply
        places = [reply.text.index(stop) for stop in stops if stop in reply.text]
        return replace(reply, text=reply.text[: min(places)]) if places else reply

    def _generation(self, reply: RemoteReply, computed: int, seconds: float) -> Generation:
        return Generation(
            text=reply.text,
            tokens=(),
            logprobs=reply.logprobs,
            finish=reply.finish,
            policy=self.name,
            version=0,
            prompt_tokens=reply.prompt_tokens,
            computed_tokens=max(0, computed),
            sampled_tokens=reply.sampled_tokens,
            seconds=seconds,
            tool_calls=reply.tool_calls,
            reasoning=reply.reasoning,
            signature=reply.signature,
        )

    # ── faults ───────────────────────────────────────────────────────────────

    def _fault(self, error: Exception, made: Attempts) -> ContextTooLong | InfrastructureFault:
        """Return the error for an SDK's exception."""
        sdk, status = self._protocol.sdk, _status(error)
        times = f", {made.made} times in a row; check that the server is well"
        if isinstance(error, sdk.APITimeoutError):
            problem = f"did not answer within {self._timeout:g} s"
            return self._infrastructure("timeout", problem + times)
        if isinstance(error, sdk.APIConnectionError) or not isinstance(error, sdk.APIError):
            problem = f"could not be reached ({cause(error.__cause__ or error)})"
            return self._infrastructure("connection", problem + times)
        if status is None:
            problem = f"broke off its answer ({quote(str(error))})"
            return self._infrastructure("server", problem + times)
        response = _response(error)
        reason, text = response.reason_phrase, response.text
        if not retryable(status, text):
            return refused_error(
                self.name, status, reason, text, answered=self._answered, key=self._key
            )
        problem = f"answered {status_line(status, reason, text)}"
        asked = retry_after(response.headers)
        if asked > LONGEST_PAUSE:
            problem += f" and asked for a pause of {asked:.0f} s; try again later"
            return self._infrastructure("server", problem)
        return self._infrastructure("server", problem + times)

    def _unusable(self, answer: Any) -> InfrastructureFault:
        text = (
            answer.to_json(indent=None, warnings=False)
            if hasattr(answer, "to_json")
            else str(answer)
        )
        return self._infrastructure(
            "answer",
            f"answered without a usable choice ({quote(text)}); check that the server speaks "
            f"{self._protocol.title}",
        )

    def _infrastructure(self, kind: str, problem: str) -> InfrastructureFault:
        return InfrastructureFault(kind, f"{self.name} {problem}")


def _status(error: Exception) -> int | None:
    """Return the status of an error response; None without a response, or if a stream failed."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _response(error: Exception) -> httpx2.Response:
    """Return the response that an SDK raised as an error."""
    return error.response  # type: ignore[attr-defined]


def _restored(kept: Mapping[str, Any]) -> RemoteReply:
    """Return a reply read from the response cache."""
    calls = tuple(ToolCall(**call) for call in kept["tool_calls"])
    return RemoteReply(**{
        **kept,
        "finish": Finish(kept["finish"]),
        "tool_calls": calls,
        "logprobs": tuple(kept["logprobs"]),
    })  # fmt: skip
