"""A server of the resident engine: token ids in and out, and weights that can be replaced.

    python -m palaestra.models.local.server FOLDER --port 8000

serves the checkpoint in FOLDER to an `ExternalActor` on another machine or in another process
(the part of vLLM's protocol that it uses: see `external_actor`). A client can make it load any
checkpoint that it can read. So it listens on this machine only by default; with another host it
requires the key in the environment variable PALAESTRA_SERVER_KEY with every request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import uvicorn
from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from torch import Tensor

from palaestra.core.errors import ContextTooLong, InputError
from palaestra.core.model import Generation, Prompt, Sampling
from palaestra.models import registry
from palaestra.models.local import devices
from palaestra.models.local.engine import OnUpdate
from palaestra.models.local.networks import Backend, load_network
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.schedule import ScheduleName

KEY = "PALAESTRA_SERVER_KEY"
CONTEXT = 2048  # tokens of a conversation, by default
DRAINING = 0.005  # seconds between polls of replies that must be complete before an update


class Completion(BaseModel):
    """The supported fields of the body of `/v1/completions`."""

    prompt: list[int] = Field(min_length=1)
    max_tokens: int = Field(16, ge=1)
    temperature: float = Field(1.0, ge=0)
    seed: int = 0
    stop: list[str] = []
    session_id: str | None = None


class Weights(BaseModel):
    """The arguments of `reload_weights`."""

    weights_path: Path
    version: int | None = None


class Server:
    """An HTTP application that serves one resident model."""

    def __init__(
        self, model: ResidentModel, key: str | None = None, *, one_by_one: bool = False
    ) -> None:
        """Serve a model.

        Args:
            model: replies.
            key: requests must carry it; None: all are served.
            one_by_one: sample each reply alone and without earlier keys and values, so that no
                bit of it depends on other requests.
        """
        self._model, self._key = model, key
        self._loading = asyncio.Lock()
        self._turn = asyncio.Lock() if one_by_one else None
        self.app = Starlette(
            routes=[
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/collective_rpc", self._call, methods=["POST"]),
            ]
        )

    async def _complete(self, request: Request) -> JSONResponse:
        try:
            asked = Completion.model_validate(await self._body(request))
            sampling = Sampling(asked.temperature, asked.max_tokens, tuple(asked.stop))
        except (Refused, ValidationError, InputError) as error:
            return _refusal(error)
        prompt = Prompt((), tuple(asked.prompt), sampling, asked.seed, asked.session_id)
        reply = asyncio.create_task(self._reply(prompt))
        gone = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait({reply, gone}, return_when=asyncio.FIRST_COMPLETED)
            return _completed(await reply) if reply.done() else JSONResponse({}, 499)
        except ContextTooLong as error:
            return _refusal(Refused(400, f"The prompt is too long: {error}"))
        finally:
            reply.cancel()  # no client waits for it any more
            gone.cancel()

    async def _reply(self, prompt: Prompt) -> Generation:
        if self._turn is None:
            return await self._model.generate(prompt)
        async with self._turn:
            self._model.engine.clear()
            return await self._model.generate(prompt)

    async def _call(self, request: Request) -> JSONResponse:
        try:
            call = await self._body(request)
            if not isinstance(call, dict) or call.get("method") != "reload_weights":
                raise Refused(400, "The method is unknown; call reload_weights.")
            weights = Weights.model_validate(call.get("kwargs"))
        except (Refused, ValidationError) as error:
            return _refusal(error)
        try:
            async with self._loading:
                await self._load(weights)
        except (InputError, OSError, KeyError, ValueError, RuntimeError) as error:
            reason = f"The weights in '{weights.weights_path}' cannot be loaded: {error}"
            return _refusal(Refused(400, reason))
        return JSONResponse({"results": [None]})

    async def _load(self, weights: Weights) -> None:
        model = self._model
        backend: Backend = "transformers" if model.network.whole else "resident"
        fresh = await asyncio.to_thread(
            load_network, weights.weights_path, model.network.dtype, backend
        )
        await self.replace(fresh.state_dict(), weights.version)

    async def replace(self, tensors: Mapping[str, Tensor], version: int | None = None) -> None:
        """Act with other weights from now on, as soon as the engine allows it.

        Args:
            tensors: all weights of the network, by name.
            version: of them; None: the next one.
        """
        model = self._model
        with model.held():
            while model.draining:
                await asyncio.sleep(DRAINING)
            model.network.load_state_dict(tensors)
            model.updated()
            if version is not None:
                model.version = version

    async def _body(self, request: Request) -> Any:
        if self._key is not None:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
                raise Refused(401, f"The key is missing or wrong; send the server's {KEY}.")
        try:
            return json.loads(await request.body())
        except ValueError as error:
            raise Refused(400, f"The request is not JSON: {error}") from None


class Refused(Exception):
    """A request that gets an error response."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _refusal(error: Exception) -> JSONResponse:
    status = error.status if isinstance(error, Refused) else 400
    return JSONResponse({"error": {"message": str(error)}}, status)


def _completed(reply: Generation) -> JSONResponse:
    choice = {
        "index": 0,
        "text": reply.text,
        "token_ids": reply.tokens,
        "logprobs": {"token_logprobs": reply.logprobs},
        "finish_reason": reply.finish.value,
        "versions": reply.versions,
        "entropies": reply.entropies,
        "computed_tokens": reply.computed_tokens,
    }
    usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": len(reply.tokens)}
    return JSONResponse({"object": "text_completion", "choices": [choice], "usage": usage})


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def prepare_torch(threads: int, *, deterministic: bool) -> None:
    """Set how many threads torch computes with, and whether equal work gives equal bits."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # CUDA devices require it
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def load_policy(
    folder: Path,
    *,
    slots: int,
    context: int,
    precision: str,
    device: str,
    backend: Backend,
    schedule: ScheduleName,
    on_update: str,
) -> ResidentModel:
    """Load the model of a checkpoint folder, to be served.

    Args:
        folder: a Hugging Face checkpoint.
        slots: replies in flight at once.
        context: longest conversation in tokens; the model's own if that is shorter.
        precision: of the weights; see `devices.precision`.
        device: see `devices.device`.
        backend: whose code runs it.
        schedule: which requests go first.
        on_update: what happens to replies in flight when the weights change.

    Raises:
        InputError: it cannot run here, or files are missing or damaged.
    """
    target = devices.device(device)
    network = load_network(folder, devices.precision(precision, target), backend).to(target)
    return ResidentModel(
        "policy",
        network,
        registry.renderer_of(folder),
        slots=slots,
        context=min(context, network.config.max_position_embeddings),
        schedule=schedule,
        on_update=OnUpdate(on_update),
    )


def main() -> None:
    """Serve until ended; see the top of this module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a Hugging Face checkpoint")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--socket", type=Path, help="a Unix socket, instead of host and port")
    parser.add_argument("--slots", type=int, default=64, help="replies under way at once")
    parser.add_argument(
        "--context",
        type=int,
        help=f"longest conversation in tokens (default: {CONTEXT}, or the model's own if shorter)",
    )
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--backend", choices=["auto", "resident", "transformers"], default="auto")
    parser.add_argument("--schedule", choices=["fcfs", "attained"], default="fcfs")
    parser.add_argument("--on-update", choices=list(OnUpdate), default=OnUpdate.DRAIN)
    parser.add_argument("--version", type=int, default=0, help="of the weights in the folder")
    parser.add_argument(
        "--until-input-ends",
        action="store_true",
        help="echo standard input, as a sign of life, and end when it does",
    )
    options = parser.parse_args()
    try:
        key = os.environ.get(KEY)
        if options.socket is None and key is None and options.host not in ("127.0.0.1", "::1"):
            raise InputError(
                f"The host '{options.host}' accepts other machines, and no key is set; set one in "
                f"{KEY} first."
            )
        if options.context is not None:
            registry.check_context(
                str(options.folder), options.folder, options.context, "--context", options.backend
            )
        model = load_policy(
            options.folder,
            slots=options.slots,
            context=options.context or CONTEXT,
            precision=options.precision,
            device=options.device,
            backend=options.backend,
            schedule=options.schedule,
            on_update=options.on_update,
        )
        model.version = options.version
    except (InputError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if options.until_input_ends:
        threading.Thread(target=_end_with_input, daemon=True).start()
    uvicorn.run(
        Server(model, key).app,
        host=options.host,
        port=options.port,
        uds=str(options.socket) if options.socket else None,
        log_level="warning",
        access_log=False,
    )


def _end_with_input() -> None:
    """Echo the input, and exit when it ends.

    The parent process holds the input open as long as it lives. The echo shows that this process
    runs, independently of the engine.
    """
    with contextlib.suppress(OSError):
        while sign := os.read(sys.stdin.fileno(), 4096):
            os.write(sys.stdout.fileno(), sign)
    os._exit(0)


if __name__ == "__main__":
    main()
