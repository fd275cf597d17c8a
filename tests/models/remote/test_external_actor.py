"""External actors: replies, changes of weights, and crashes of the serving process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tokenizers import Tokenizer, models, pre_tokenizers

from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError
from palaestra.core.model import Prompt, Sampling
from palaestra.models.local import serving_process
from palaestra.models.local.checkpoint_format import write_network
from palaestra.models.local.engine import OnUpdate
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.server import Server
from palaestra.models.local.serving_process import ServingProcess
from palaestra.models.remote.endpoint import Endpoint, RetryPolicy
from palaestra.models.remote.external_actor import ExternalActor, parse_external_actor
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.training.policy_building import save_tokenizer
from tests.learning.made import Words, resident, tiny

HASTY = RetryPolicy(attempts=2, timeout=20.0, first_wait=0.01)


def prompt(seed: int = 0, *, most: int = 12, temperature: float = 1.0, length: int = 4) -> Prompt:
    return Prompt((), (1, *range(3, 3 + length)), Sampling(temperature, most), seed, "episode")


@asynccontextmanager
async def listening(app: Starlette, socket: Path) -> AsyncIterator[Endpoint]:
    server = uvicorn.Server(uvicorn.Config(app, uds=str(socket), log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    endpoint = Endpoint("the actor", "http://actor", socket=socket, retries=HASTY)
    try:
        yield endpoint
    finally:
        await endpoint.close()
        server.should_exit = True
        await task


@asynccontextmanager
async def served(
    model: ResidentModel, folder: Path, **options: Any
) -> AsyncIterator[ExternalActor]:
    async with listening(Server(model).app, folder / "socket") as endpoint:
        yield ExternalActor("policy", model.renderer, endpoint, **options)


def test_it_says_what_the_resident_model_says(tmp_path: Path) -> None:
    asked = [prompt(i, temperature=0.5 + i / 4) for i in range(4)]
    asked.append(Prompt((), (1, 3), Sampling(1.0, 40, ("w5",)), 7))

    async def ask() -> None:
        local = resident(tiny())
        async with served(resident(tiny()), tmp_path) as far:
            for one in asked:
                here, there = await local.generate(one), await far.generate(one)
                assert there.tokens == here.tokens and there.text == here.text
                assert there.logprobs == pytest.approx(here.logprobs, abs=1e-6)
                assert there.finish is here.finish and there.version == 0
                assert (there.prompt_tokens, there.computed_tokens) == (
                    here.prompt_tokens, here.computed_tokens,
                )  # fmt: skip

    asyncio.run(ask())


def test_new_weights_wait_for_running_replies_and_serve_all_later_ones(tmp_path: Path) -> None:
    write_network(tiny(seed=1), tmp_path / "new")

    async def ask() -> None:
        old, new = resident(tiny()), resident(tiny(seed=1))
        async with served(resident(tiny()), tmp_path) as far:
            first = [asyncio.create_task(far.generate(prompt(i, most=60))) for i in range(3)]
            await asyncio.sleep(0)
            load = asyncio.create_task(far.load(tmp_path / "new", 5))
            await asyncio.sleep(0)
            later = [asyncio.create_task(far.generate(prompt(i))) for i in range(3)]
            await load
            for i in range(3):
                under_way, after = await first[i], await later[i]
                assert under_way.version == 0 and after.version == 5
                assert under_way.tokens == (await old.generate(prompt(i, most=60))).tokens
                assert after.tokens == (await new.generate(prompt(i))).tokens

    asyncio.run(ask())


async def long_one(model: ResidentModel) -> int:
    """Return a seed with a long reply."""
    for seed in range(99):
        if len((await model.generate(prompt(seed, most=99))).tokens) > 90:
            return seed
    raise AssertionError("it always stops early")


@pytest.mark.parametrize("on_update", [OnUpdate.KEEP, OnUpdate.RECOMPUTE])
def test_weights_may_move_under_replies_whose_tokens_report_it(
    on_update: OnUpdate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_network(tiny(seed=1), tmp_path / "new")

    async def ask() -> None:
        model = resident(tiny(), on_update=on_update)
        async with served(model, tmp_path, drain=False, version=2) as far:
            await far.load(tmp_path / "new", 2)
            seed = await long_one(model)
            step = model.engine.step

            def step_or_wait() -> list[Any]:
                """Leave half of the reply to the new weights, however long they take to load."""
                running = model.engine.running
                if model.version < 3 and running and len(running[0].completion) >= 50:
                    return []
                return step()

            monkeypatch.setattr(model.engine, "step", step_or_wait)
            reply = asyncio.create_task(far.generate(prompt(seed, most=99)))
            while not model.engine.running or len(model.engine.running[0].completion) < 5:
                await asyncio.sleep(0)
            await far.load(tmp_path / "new", 3)
            versions = (await reply).versions
            assert versions == tuple(sorted(versions)) and set(versions) == {2, 3}
            assert (await reply).version == 2

    asyncio.run(ask())


def test_a_session_that_gives_up_leaves_nothing_behind(tmp_path: Path) -> None:
    async def ask() -> None:
        model = resident(tiny())
        async with served(model, tmp_path) as far:
            reply = asyncio.create_task(far.generate(prompt(most=99)))
            while not model.engine.running:
                await asyncio.sleep(0)
            reply.cancel()
            until = time.monotonic() + 10
            while model.engine.pending and time.monotonic() < until:
                await asyncio.sleep(0.01)
            assert not model.engine.pending
            await asyncio.wait_for(far.load(_written(tmp_path), 1), 10)  # waits for no reply

    asyncio.run(ask())


def _written(folder: Path) -> Path:
    write_network(tiny(seed=1), folder / "new")
    return folder / "new"


def test_what_the_server_cannot_do_is_reported(tmp_path: Path) -> None:
    async def ask() -> None:
        async with served(resident(tiny()), tmp_path) as far:
            with pytest.raises(ContextTooLong):
                await far.generate(Prompt((), (3,) * 200, Sampling(), 0))
            with pytest.raises(InfrastructureFault, match="missing"):
                await far.load(tmp_path / "missing", 1)
            assert far.version == 0
            assert (await far.generate(prompt())).version == 0
        async with listening(Server(resident(tiny()), "secret").app, tmp_path / "locked") as end:
            with pytest.raises(InfrastructureFault, match="key"):
                await ExternalActor("policy", Words(), end).generate(prompt())

    asyncio.run(ask())


def chosen(tokens: list[int], logprobs: list[float]) -> dict[str, Any]:
    return {"token_ids": tokens, "logprobs": {"token_logprobs": logprobs}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("choice", "drain"),
    [
        (chosen([3], [-1.0]), False),  # without versions
        (chosen([3, 4], [-1.0]), True),
        (chosen([], []), True),
        ({"text": "no ids", "finish_reason": "stop"}, True),
    ],
)
def test_an_answer_that_cannot_be_learned_from_is_an_error(
    choice: dict[str, Any], drain: bool, tmp_path: Path
) -> None:
    async def complete(request: Request) -> JSONResponse:
        return JSONResponse({"choices": [choice]})

    async def ask() -> None:
        app = Starlette(routes=[Route("/v1/completions", complete, methods=["POST"])])
        async with listening(app, tmp_path / "socket") as endpoint:
            with pytest.raises(InfrastructureFault, match="return_token_ids"):
                await ExternalActor("policy", Words(), endpoint, drain=drain).generate(prompt())

    asyncio.run(ask())


def test_a_server_that_lost_its_weights_is_an_error(tmp_path: Path) -> None:
    """After a restart it acts with the weights that it started with."""

    async def ask() -> None:
        model = resident(tiny(), on_update=OnUpdate.KEEP)
        async with served(model, tmp_path, drain=False) as far:
            await far.load(_written(tmp_path), 3)
            model.version = 0
            with pytest.raises(InfrastructureFault, match=r"version 0 .* version 3 .* restarted"):
                await far.generate(prompt())

    asyncio.run(ask())


def test_what_vllm_is_asked(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def complete(request: Request) -> JSONResponse:
        asked.append(json.loads(await request.body()))
        logprobs = {"token_logprobs": [-0.5, -0.25]}
        choice = {"token_ids": [5, 0], "logprobs": logprobs, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice]})

    async def load(request: Request) -> JSONResponse:
        asked.append(json.loads(await request.body()))
        return JSONResponse({"results": [None]})

    async def ask() -> None:
        routes = [
            Route("/v1/completions", complete, methods=["POST"]),
            Route("/collective_rpc", load, methods=["POST"]),
        ]
        async with listening(Starlette(routes=routes), tmp_path / "socket") as endpoint:
            far = ExternalActor("policy", Words(), endpoint, model="small")
            reply = await far.generate(prompt(2**63 + 4))
            assert (reply.tokens, reply.logprobs, reply.text) == ((5, 0), (-0.5, -0.25), "green")
            await far.load(tmp_path, 1)
            await far.generate(prompt())

    asyncio.run(ask())
    first, loaded, second = asked
    assert first["prompt"] == [1, 3, 4, 5, 6] and first["model"] == "small"
    assert first["return_token_ids"] is True and first["stop_token_ids"] == [0]
    assert 0 <= first["seed"] < 2**63 and first["session_id"] == "episode"
    assert first["cache_salt"] != second["cache_salt"]  # keys of old weights are not reused
    assert loaded == {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}


@pytest.mark.parametrize("name", ["served:policy", "served:@http://x", "policy@http://x"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="served:MODEL@URL"):
        parse_external_actor(name)


def checkpoint(folder: Path, seed: int) -> Path:
    vocabulary = {"[UNK]": 0, "<|endoftext|>": 1, "<|im_start|>": 2, "<|im_end|>": 3, "a": 4}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(vocabulary)[1:4])
    write_network(tiny(len(vocabulary), seed=seed), folder)
    save_tokenizer(tokenizer, folder)
    return folder


HURRIED = RetryPolicy(attempts=3, timeout=120.0, first_wait=0.01)  # far less than a start takes
ASKED = Prompt((), (2, 4, 4), Sampling(1.0, 20), 3)


@asynccontextmanager
async def process_of(
    folder: Path, *, version: int = 0, on_update: OnUpdate = OnUpdate.DRAIN
) -> AsyncIterator[tuple[ServingProcess, ExternalActor]]:
    options = ["--context=128", "--precision=fp32", f"--on-update={on_update}"]
    async with ServingProcess(folder, options, threads=1, version=version) as process:
        socket, serving = process.socket, process.serving
        endpoint = Endpoint("it", "http://it", socket=socket, retries=HURRIED, serving=serving)
        renderer = ChatMLRenderer.from_folder(folder)
        drain = on_update is OnUpdate.DRAIN
        yield (
            process,
            ExternalActor(
                "policy",
                renderer,
                endpoint,
                drain=drain,
                version=version,
                loading=process.begin_with,
            ),
        )
        await endpoint.close()


def end(process: ServingProcess, how: int) -> None:
    assert process.pid is not None
    os.kill(process.pid, how)


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    old, new = (checkpoint(tmp_path / name, seed) for seed, name in enumerate(("old", "new")))

    async def ask() -> None:
        async with process_of(old) as (process, far):
            await far.load(new, 1)
            before = await far.generate(ASKED)
            end(process, signal.SIGKILL)
            after = await far.generate(ASKED)
            assert after.tokens == before.tokens and process.starts == 2
            pid = process.pid
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(ask())


@pytest.mark.slow
def test_a_replaced_process_has_the_weights_and_the_version_of_the_one_before(
    tmp_path: Path,
) -> None:
    old, new = (checkpoint(tmp_path / name, seed) for seed, name in enumerate(("old", "new")))

    async def ask() -> None:
        async with process_of(old, version=4, on_update=OnUpdate.KEEP) as (process, far):
            before = await far.generate(ASKED)
            assert set(before.versions) == {4}
            end(process, signal.SIGKILL)
            await far.load(new, 7)
            meant = await far.generate(ASKED)
            assert meant.tokens != before.tokens and set(meant.versions) == {7}
            end(process, signal.SIGKILL)
            reply = await far.generate(ASKED)
            assert reply.tokens == meant.tokens and set(reply.versions) == {7}
            assert process.starts == 3

    asyncio.run(ask())


@pytest.mark.slow
def test_a_frozen_process_is_replaced_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_process, "SILENT", 4)

    async def ask() -> None:
        async with process_of(checkpoint(tmp_path / "it", 0)) as (process, far):
            before = await far.generate(ASKED)
            frozen = process.pid
            end(process, signal.SIGSTOP)
            async with asyncio.timeout(100):  # one attempt alone may take 120
                assert (await far.generate(ASKED)).tokens == before.tokens
            assert process.pid != frozen

    asyncio.run(ask())


@pytest.mark.slow
def test_time_in_which_no_one_looks_is_not_held_against_a_process(tmp_path: Path) -> None:
    async def ask() -> None:
        async with process_of(checkpoint(tmp_path / "it", 0)) as (process, far):
            await far.generate(ASKED)
            await asyncio.sleep(2.5)  # in the middle of a heartbeat
            time.sleep(1.5 * serving_process.SILENT * serving_process.BEAT)
            await asyncio.sleep(2.5)
            await far.generate(ASKED)
            assert process.starts == 1

    asyncio.run(ask())


@pytest.mark.slow
def test_a_process_that_dies_at_once_is_given_up_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "dying"
    dying.write_text('#!/bin/sh\ndate +%s.%N >> "${0%/*}/starts"\necho no luck >&2\nexit 1\n')
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    monkeypatch.setattr(serving_process, "PAUSE", 0.1)

    async def ask() -> None:
        async with process_of(checkpoint(tmp_path / "it", 0)):
            pytest.fail("started")

    with pytest.raises(InfrastructureFault, match=r"--resume.*rl\.actor(?s:.*)no luck"):
        asyncio.run(ask())
    starts = [float(line) for line in (tmp_path / "starts").read_text().split()]
    assert len(starts) == serving_process.DEATHS
    for number, (before, after) in enumerate(pairwise(starts)):
        assert after - before > 0.1 * 2**number


def test_a_call_to_a_process_that_was_given_up_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_process, "PAUSE", 0.01)

    async def ask() -> None:
        async with process_of(checkpoint(tmp_path / "it", 0)) as (process, far):
            monkeypatch.setattr(sys, "executable", "/bin/false")
            end(process, signal.SIGKILL)
            for _ in range(2):
                with pytest.raises(InfrastructureFault, match=r"times in a row.*--resume"):
                    await far.generate(ASKED)

    asyncio.run(ask())


def test_a_process_that_cannot_start_reports_why(tmp_path: Path) -> None:
    async def start() -> None:
        async with ServingProcess(tmp_path / "nowhere", [], threads=1):
            pytest.fail("started")

    with pytest.raises(InfrastructureFault, match="nowhere"):
        asyncio.run(start())
