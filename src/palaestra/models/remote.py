"""A remote model: any server that speaks one of the `dialects`, by URL.

All sessions that ask one server share its pace; answers can be kept and given again.

A name is `SCHEME:MODEL@URL`, then options, then the variable that holds the API key:
`openai:qwen3@http://localhost:8000/v1?concurrency=8&rpm=60#API_KEY`. The options:

`concurrency=N`   at most N requests at once, and fewer while the server is overloaded
`rpm=N`           at most N requests in any minute
`tpm=N`           at most N tokens in any minute, of prompts and replies
`timeout=S`       seconds to wait for one answer
`attempts=N`      how often to ask before giving up
`cache=FILE`      answers are kept in FILE; the very same request is not sent again
`logprobs=on`     log-probabilities of the replies are asked for, and recorded
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.model import Generation, Model, Prompt
from palaestra.models.answers import Answers, exact
from palaestra.models.dialects import DIALECTS, OPENAI, UNUSABLE, Dialect, Reply
from palaestra.models.endpoint import Endpoint, Patience, api_key
from palaestra.models.pace import Limits, Pace, Traffic, expected_tokens, shared

OPTIONS = {
    "attempts": "a whole number above 0",
    "cache": "a file",
    "concurrency": "a whole number above 0",
    "logprobs": "on",
    "rpm": "a whole number above 0",
    "timeout": "seconds above 0",
    "tpm": "a whole number above 0",
}
"""Name to what it takes."""

_NAME = re.compile(
    rf"(?P<scheme>{'|'.join(DIALECTS)}):(?P<model>.+?)@(?P<url>https?://[^?#]+)"
    r"(?:\?(?P<options>[^#]*))?(?:#(?P<key>[A-Za-z_]\w*))?"
)


class RemoteModel(Model):
    """A model behind a URL. Its tokens are unknown, so it can be evaluated but not trained."""

    def __init__(
        self,
        model: str,
        url: str,
        *,
        dialect: Dialect = OPENAI,
        key: str | None = None,
        logprobs: bool = False,
        patience: Patience = Patience(),
        pace: Pace | None = None,
        answers: Answers | None = None,
    ) -> None:
        """A model of the server at `url`.

        Args:
            model: the model's name on the server.
            url: base URL of the API, usually ending in `/v1`.
            dialect: how the server is spoken to.
            key: the environment variable that holds the API key; None sends no key.
            logprobs: whether to ask for the log-probabilities of the reply.
            patience: how long to bear with the server.
            pace: how fast to ask; None is one of its own, without limits but the server's.
            answers: where answers are kept and looked up; None keeps none.

        Raises:
            InputError: the environment variable is not set, or the dialect knows no
                log-probabilities.
        """
        if logprobs and not dialect.logprobs:
            raise InputError(
                f"{dialect.title[0].upper()}{dialect.title[1:]} knows no log-probabilities; leave "
                f"out 'logprobs' for the model '{model}'."
            )
        self.name = f"{dialect.scheme}:{model}@{url}"
        self._model, self._url, self._dialect, self._logprobs = model, url, dialect, logprobs
        headers = dialect.headers(api_key(key))
        self._endpoint = Endpoint(self.name, url, headers=headers, patience=patience)
        self._pace = pace or Pace()
        self._answers = answers

    @property
    def traffic(self) -> Traffic:
        """What has passed between this process and the server."""
        return self._pace.traffic

    async def generate(self, prompt: Prompt) -> Generation:
        """See `Model.generate`. `seconds` is the time of the one attempt that was answered."""
        request = self._dialect.request(self._model, prompt, self._logprobs)
        if self._answers is None:
            _, reply, seconds = await self._ask(request, prompt)
            return self._generation(reply, reply.prompt_tokens - reply.cached_tokens, seconds)
        return await self._recall(self._answers, request, prompt)

    async def close(self) -> None:
        await self._endpoint.close()
        if self._answers is not None:
            await self._answers.close()

    # ── asking ───────────────────────────────────────────────────────────────

    async def _recall(
        self, answers: Answers, request: Mapping[str, Any], prompt: Prompt
    ) -> Generation:
        """The kept answer; where there is none, the server's, which is kept from now on."""
        started = time.monotonic()
        key = exact(self._dialect.path, self._model, self._url, request, prompt.seed)
        kept = await answers.get(key)
        if kept is not None:
            return self._generation(self._reply(kept), 0, time.monotonic() - started)
        answer, reply, seconds = await self._ask(request, prompt)
        computed = reply.prompt_tokens - reply.cached_tokens
        kept = await answers.put(key, answer)  # only now: what cannot be used is not kept
        return self._generation(self._reply(kept), computed, seconds)

    async def _ask(self, request: Mapping[str, Any], prompt: Prompt) -> tuple[Any, Reply, float]:
        """The server's answer, what it says, and the seconds that it took."""
        ticket = self._pace.arrive(self._expected(request, prompt))
        response = await self._endpoint.post(self._dialect.path, request, ticket)
        answer = self._endpoint.read(response)
        reply = self._reply(answer)
        ticket.account(reply.prompt_tokens, reply.sampled_tokens)
        return answer, reply, response.elapsed.total_seconds()

    def _expected(self, request: Mapping[str, Any], prompt: Prompt) -> int:
        if self._pace.limits.tpm is None:
            return 0
        text = json.dumps(request, ensure_ascii=False)
        return expected_tokens(text, prompt.sampling.max_tokens)

    def _reply(self, answer: Any) -> Reply:
        try:
            return self._dialect.reply(answer)
        except UNUSABLE:
            raise self._endpoint.unusable(answer, self._dialect.title) from None

    def _generation(self, reply: Reply, computed: int, seconds: float) -> Generation:
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
        )


def parse_remote(name: str) -> RemoteModel:
    """The model of a name such as `openai:qwen3@http://localhost:8000/v1?rpm=60#API_KEY`.

    The part after `#` names the environment variable that holds the API key. Without it no key is
    sent: a key never goes to a URL for which it was not named. Models of one process with the
    same server, model, key and limits share a pace.

    Raises:
        UnknownName: there is no such option.
        InputError: the name has another form, an option cannot be, or the variable is not set.
    """
    match = _NAME.fullmatch(name)
    if match is None or not _has_host(match["url"]):
        raise InputError(
            f"'{name}' names no remote model; write openai:MODEL@URL (or anthropic:MODEL@URL), for "
            "example openai:qwen3@http://localhost:8000/v1, and #VARIABLE behind it where the "
            "environment variable VARIABLE holds an API key."
        )
    chosen = _Options.of(name, match["options"])
    server = f"{match['scheme']}:{match['model']}@{match['url']}#{match['key'] or ''}"
    return RemoteModel(
        match["model"],
        match["url"],
        dialect=DIALECTS[match["scheme"]],
        key=match["key"],
        logprobs=chosen.logprobs,
        patience=chosen.patience,
        pace=shared(server, chosen.limits),
        answers=None if chosen.cache is None else Answers(chosen.cache),
    )


@dataclass(frozen=True, slots=True)
class _Options:
    """What the options of a name ask for."""

    limits: Limits
    patience: Patience
    cache: Path | None
    logprobs: bool

    @classmethod
    def of(cls, name: str, query: str | None) -> _Options:
        """From what stands between `?` and `#`; None: there is no `?`."""
        found: dict[str, str] = {}
        for part in () if query is None else query.split("&"):
            option, _, value = part.partition("=")
            if option not in OPTIONS:
                raise UnknownName("option of remote models", option, OPTIONS)
            if option in found:
                raise InputError(f"'{name}' sets '{option}' twice; set it once.")
            if not _fits(OPTIONS[option], value):
                raise InputError(f"'{part}' in '{name}' cannot be; give {OPTIONS[option]}.")
            found[option] = value
        numbers = {
            option: int(value)
            for option, value in found.items()
            if OPTIONS[option] == "a whole number above 0"
        }
        patience = Patience()
        if "attempts" in numbers:
            patience = replace(patience, attempts=numbers.pop("attempts"))
        if "timeout" in found:
            patience = replace(patience, timeout=float(found["timeout"]))
        cache = Path(found["cache"]).expanduser() if "cache" in found else None
        return cls(Limits(**numbers), patience, cache, "logprobs" in found)


def _fits(takes: str, value: str) -> bool:
    if takes == "a file":
        return bool(value)
    if takes == "on":
        return value == takes
    if takes == "a whole number above 0":
        return value.isascii() and value.isdecimal() and int(value) > 0
    return re.fullmatch(r"\d+(\.\d+)?|\.\d+", value) is not None and float(value) > 0


def _has_host(url: str) -> bool:
    try:
        return bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False
