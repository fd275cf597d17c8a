"""A remote model: any server that speaks OpenAI's chat-completions protocol, by URL."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx

from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.models.endpoint import Endpoint, Patience

_NAME = re.compile(r"openai:(?P<model>.+?)@(?P<url>https?://[^#]+)(?:#(?P<key>[A-Za-z_]\w*))?")


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
        self._model, self._logprobs = model, logprobs
        self._endpoint = Endpoint(self.name, url, key=key, patience=patience)

    async def generate(self, prompt: Prompt) -> Generation:
        started = time.monotonic()
        answer = await self._endpoint.ask("/chat/completions", self._request(prompt))
        return self._generation(answer, time.monotonic() - started)

    async def close(self) -> None:
        await self._endpoint.close()

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

    # ── the answer ───────────────────────────────────────────────────────────

    def _generation(self, answer: Any, seconds: float) -> Generation:
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
            raise self._endpoint.unusable(answer, "the chat-completions protocol") from None
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


def _as_json(message: Message) -> dict[str, str]:
    # A tool message of the protocol must name the call that it answers; ours are plain words.
    return {
        "role": "user" if message.role == "tool" else message.role,
        "content": message.content,
    }
