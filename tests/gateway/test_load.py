"""One program's requests do not block another's, and a retried request is recorded once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from palaestra.core.message import Message
from palaestra.core.tool import Tool
from palaestra.gateway.gateway import Gateway
from palaestra.gateway.session_endpoint import MAX_CONCURRENT
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer
from tests.gateway.test_refusals import CHAT, ENDPOINTS, START, Slow, reason
from tests.gateway.visits import Visited, visit

TOOL: Any = {"type": "function", "function": {"name": "t", "parameters": {}}}


def scripted() -> ScriptedModel:
    return ScriptedModel(lambda _: "up", renderer=renderer())


TOO_MUCH: dict[str, Any] = {
    "tools": {**CHAT, "tools": [TOOL] * 1_001},
    "values": {**CHAT, "metadata": {"x": [0] * 100_000}},
    "brackets": {**CHAT, "metadata": [[]] * 400_000},
    "characters": {**CHAT, "messages": [{"role": "user", "content": "up " * 700_000}]},
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_request_that_holds_too_much_is_refused_in_one_sentence(what: str) -> None:
    async def run() -> None:
        async with visit(scripted()) as visited:
            for path in ENDPOINTS:
                answer = await visited.post(path, TOO_MUCH[what])
                assert answer.status_code == 413
                assert what in reason(path, answer)
            assert (await visited.chat(START)).status_code == 200
            assert len(visited.session.graph.calls) == 1

    asyncio.run(run())


class Reading(ChatMLRenderer):
    """Tokenises long texts as slowly as the test lets it."""

    def __init__(self) -> None:
        super().__init__(renderer().tokenizer)
        self.begun, self.go = threading.Event(), threading.Event()

    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        if any(len(message.text) > 100_000 for message in messages):
            self.begun.set()
            assert self.go.wait(20), "nobody was served while a long text was read"
        return super().start(messages)


def test_others_are_served_while_a_long_text_is_read() -> None:
    async def run() -> None:
        own, agent = Reading(), Visited(Gateway())
        model = ScriptedModel(lambda _: "up", renderer=own)
        async with visit(model, agent=agent) as one, visit(scripted(), agent=agent) as other:
            text = "up and down " * 10_000
            asking = asyncio.ensure_future(one.chat([{"role": "user", "content": text}]))
            await asyncio.to_thread(own.begun.wait, 20)
            assert (await other.chat(START)).status_code == 200
            assert (await one.chat(START)).status_code == 200
            own.go.set()
            assert (await asking).status_code == 200
            first, second = one.session.graph.calls
            assert list(second.prompt) == ChatMLRenderer.start(own, second.messages)
            assert len(second.prompt) > len(first.prompt)

    asyncio.run(run())


def test_a_long_text_has_the_same_tokens_in_chunks_as_in_whole() -> None:
    words = "up and down, é €. <|im_end|>\n" * 2_000
    whole = renderer().tokenizer.encode(words, add_special_tokens=False).ids
    assert renderer().reply(words)[:-1] == whole


def test_other_threads_run_while_a_long_text_is_tokenised() -> None:
    turns, over = 0, threading.Event()

    def run() -> None:
        nonlocal turns
        while not over.wait(0.005):
            turns += 1

    thread = threading.Thread(target=run)
    thread.start()
    text = "the quick brown fox, up and down. é " * 20_000  # a second or more
    before = turns
    renderer().reply(text)
    during = turns - before
    over.set()
    thread.join()
    assert during >= 5  # none or one where the interpreter is held


def test_a_client_over_the_limit_may_retry_and_is_recorded_once() -> None:
    async def run() -> None:
        model = Slow()
        async with visit(model) as visited:
            asking = [asyncio.ensure_future(visited.chat(START)) for _ in range(MAX_CONCURRENT)]
            while len(visited.endpoint._tasks) < MAX_CONCURRENT:
                await asyncio.sleep(0.01)
            refused = await visited.chat([*START, *START])
            assert refused.status_code == 429
            assert refused.headers["x-should-retry"] == "true"
            assert int(refused.headers["retry-after"]) >= 1
            sdk = openai.AsyncOpenAI(
                base_url=f"{visited.address}/v1", api_key=visited.endpoint.token, max_retries=5
            )
            again: Any = [*START, *START, *START]
            patient = asyncio.ensure_future(sdk.chat.completions.create(model="m", messages=again))
            await asyncio.sleep(0.3)  # it is refused meanwhile
            model.go.set()
            assert (await patient).choices[0].message.content == "up"
            await asyncio.gather(*asking)
            lengths = [len(call.messages) for call in visited.session.graph.calls]
            assert sorted(lengths) == [1] * MAX_CONCURRENT + [3]

    asyncio.run(run())


AGAIN = {"x-stainless-retry-count": "1"}  # as the SDKs of OpenAI and Anthropic say it


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_sent_again_without_an_answer_is_recorded_once(stream: bool) -> None:
    body = {**CHAT, "stream": stream}
    path = "/v1/chat/completions"

    async def run() -> None:
        model = Slow()
        async with visit(model, keepalive=0.05) as visited:
            first = asyncio.ensure_future(visited.post(path, body))
            await model.begun.wait()
            await asyncio.sleep(0.1)
            first.cancel()  # it hangs up
            await asyncio.wait({first})
            await asyncio.sleep(0.1)
            second = asyncio.ensure_future(visited.post(path, body, headers=AGAIN))
            await asyncio.sleep(0.1)
            model.go.set()
            answer = await second
            assert answer.status_code == 200 and "up" in answer.text
            assert len(visited.session.graph.calls) == 1
            await visited.post(path, {**body, "max_tokens": 7}, headers=AGAIN)  # another one
            assert len(visited.session.graph.calls) == 2

    asyncio.run(run())


def test_an_equal_request_of_a_waiting_client_is_a_separate_one() -> None:
    """Requests for many replies to one prompt are common, and some replies are late."""

    async def run() -> None:
        model = Slow()
        async with visit(model) as visited:
            first = asyncio.ensure_future(visited.chat(START))
            await model.begun.wait()
            second = asyncio.ensure_future(
                visited.post("/v1/chat/completions", CHAT, headers=AGAIN)
            )
            await asyncio.sleep(0.1)
            model.go.set()
            numbers = {(await one).json()["palaestra"]["call"] for one in (first, second)}
            third = await visited.post("/v1/chat/completions", CHAT, headers=AGAIN)
            assert {*numbers, third.json()["palaestra"]["call"]} == {0, 1, 2}
            assert len(visited.session.graph.calls) == 3

    asyncio.run(run())
