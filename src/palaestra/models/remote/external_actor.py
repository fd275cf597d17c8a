"""An external actor: a policy behind a server, with copies of the weights that are trained here.

Token ids go in and come out, with their log-probabilities, so its replies can be trained on. After
an update the server loads a checkpoint from a shared folder. The protocol is vLLM's:
`/v1/completions` with `return_token_ids`, and `/collective_rpc` with `reload_weights` (start vLLM
with VLLM_SERVER_DEV_MODE=1, and with `--logprobs-mode processed_logprobs` to sample at
temperatures other than 1). `models.local.server` implements it for the resident engine.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.model import Finish, Generation, Model, Prompt, Renderer
from palaestra.models.remote.endpoint import Endpoint, RetryPolicy
from palaestra.models.renderers.tool_conventions import check_tool_options, read_reply

PROTOCOL = "vLLM's completions protocol with return_token_ids"
_NAME = re.compile(r"served:(?P<model>.+?)@(?P<url>https?://[^#]+)(?:#(?P<key>[A-Za-z_]\w*))?")


class ExternalActor(Model):
    """A policy behind a server whose only user is this process."""

    renderer: Renderer

    def __init__(
        self,
        name: str,
        renderer: Renderer,
        endpoint: Endpoint,
        *,
        model: str = "policy",
        version: int = 0,
        drain: bool = True,
        loading: Callable[[Path, int], None] | None = None,
    ) -> None:
        """Describe the actor; nothing is sent yet.

        Args:
            name: its name in recorded calls.
            renderer: messages to tokens and back.
            endpoint: the server, by its root (without `/v1`).
            model: the model's name on the server.
            version: of the weights that the server starts with.
            drain: complete replies in flight before weights are loaded; otherwise they continue
                with the new weights, and the server must report which weights sampled which token.
            loading: called with each checkpoint and its version right before the server loads
                it, so that a server that is restarted afterwards starts with them.
        """
        self.name, self.renderer, self.version = name, renderer, version
        self.native_tools = renderer.native_tools
        self._endpoint, self._model, self._drain = endpoint, model, drain
        self._loading = loading
        self._salt = secrets.token_hex(4)  # share no cached keys and values with other users
        self._in_flight = 0
        self._idle = asyncio.Event()  # set while no request is in flight
        self._open = asyncio.Event()  # set while requests may be sent
        self._idle.set()
        self._open.set()

    async def generate(self, prompt: Prompt) -> Generation:
        check_tool_options(self.name, prompt.sampling)
        await self._open.wait()
        started, version = time.monotonic(), self.version
        self._in_flight += 1
        self._idle.clear()
        try:
            answer = await self._endpoint.ask("/v1/completions", self._request(prompt))
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
        return self._generation(prompt, answer, version, time.monotonic() - started)

    async def load(self, folder: Path, version: int) -> None:
        """Act with the checkpoint in `folder` from now on.

        Args:
            folder: a Hugging Face checkpoint, at the same path on the server.
            version: stamped on what those weights sample.

        Raises:
            InfrastructureFault: the server did not load it.
        """
        self._open.clear()
        try:
            if self._drain:
                await self._idle.wait()
            weights: dict[str, Any] = {"weights_path": str(folder)}
            if not self._drain:
                weights["version"] = version
            call = {"method": "reload_weights", "kwargs": weights}
            if self._loading is not None:
                self._loading(folder, version)
            await self._endpoint.post("/collective_rpc", call)
            self.version = version
        finally:
            self._open.set()

    async def close(self) -> None:
        await self._endpoint.close()

    def _request(self, prompt: Prompt) -> Mapping[str, Any]:
        assert prompt.tokens is not None  # the session renders for models with a renderer
        request: dict[str, Any] = {
            "model": self._model,
            "prompt": list(prompt.tokens),
            "max_tokens": self.limited(prompt.sampling).max_tokens,
            "temperature": prompt.sampling.temperature,
            "seed": prompt.seed & 0x7FFFFFFFFFFFFFFF,
            "stop": list(prompt.sampling.stop),
            "stop_token_ids": sorted(self.renderer.end_tokens),
            "logprobs": 0,  # of the sampled token only
            "return_token_ids": True,
            # never reuse keys and values of other weights
            "cache_salt": f"{self._salt}-{self.version}",
            # otherwise a checkpoint's own defaults would change the distribution
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        }
        if prompt.program is not None:
            request["session_id"] = prompt.program
        return request

    def _generation(self, prompt: Prompt, answer: Any, version: int, seconds: float) -> Generation:
        assert prompt.tokens is not None
        try:
            choice = answer["choices"][0]
            tokens = tuple(map(int, choice["token_ids"]))
            logprobs = tuple(map(float, choice["logprobs"]["token_logprobs"]))
            finish = Finish.LENGTH if choice["finish_reason"] == "length" else Finish.STOP
            versions = () if self._drain else tuple(map(int, choice["versions"]))
            computed = int(choice.get("computed_tokens", len(prompt.tokens)))
            entropies = tuple(map(float, choice.get("entropies") or ()))  # vLLM returns none
            sizes = {len(tokens), len(logprobs), *([len(versions)] * (not self._drain))}
            sizes |= {len(entropies)} if entropies else set()
            if len(sizes) > 1 or not tokens:
                raise ValueError("lists of different lengths, or empty")
        except (KeyError, IndexError, TypeError, ValueError):
            raise self._endpoint.unusable(answer, PROTOCOL) from None
        if versions and min(versions) < version:
            raise self._endpoint.fault(
                "answer",
                f"acts with version {min(versions)} of the weights, although version {version} was "
                "loaded there: it was restarted; the next update loads them again",
            )
        reply = read_reply(self.renderer, prompt, self.renderer.text(tokens))
        return Generation(
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=reply.tool_calls,
            tokens=tokens,
            logprobs=logprobs,
            finish=finish,
            policy=self.name,
            version=versions[0] if versions else version,
            prompt_tokens=len(prompt.tokens),
            computed_tokens=computed,
            seconds=seconds,
            versions=versions,
            entropies=entropies,
        )


def parse_external_actor(name: str, retries: RetryPolicy = RetryPolicy()) -> tuple[str, Endpoint]:
    """Return the model and endpoint of a name like `served:policy@http://10.0.0.2:8000#API_KEY`.

    Raises:
        InputError: the name has another form, or the variable after `#` is not set.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"'{name}' names no external actor; write served:MODEL@URL, for example "
            "served:policy@http://localhost:8000, and append #VARIABLE if the environment "
            "variable VARIABLE holds an API key."
        )
    url = match["url"].rstrip("/").removesuffix("/v1")
    return match["model"], Endpoint(name, url, key=match["key"], retries=retries)
