"""Streams send a reply during sampling, and the record is the same as without streaming."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.message import ToolCall, assistant
from palaestra.core.model import Finish, Generation, Prompt
from palaestra.core.tool import Tool
from palaestra.gateway import hermes_tags
from palaestra.gateway.program_requests import Answer, Question
from palaestra.gateway.streaming import CertainPrefix, Chunk, StreamedReply
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer
from tests.gateway.visits import Visit, visit
from tests.models.renderers.templating import tiny

START: Any = [{"role": "user", "content": "go up"}]
UP = '<tool_call>\n{"name": "act", "arguments": {"action": "up"}}\n</tool_call>'
TOOL: Any = {"type": "function", "function": {"name": "act", "parameters": {"type": "object"}}}
ACT = Tool("act", "", {"type": "object"})


@cache
def network() -> Any:
    return tiny_network(320, layers=1, width=32, heads=2, context=512, seed=3)


def resident() -> ResidentModel:
    """Replies noise: words, control tokens and halves of characters."""
    return ResidentModel("policy", network(), renderer(), context=512)


class Spelt(ScriptedModel):
    """Samples its script token by token, as far as the test lets it."""

    def __init__(self, *replies: str) -> None:
        super().__init__(replies, renderer=renderer())
        self.let = asyncio.Semaphore(0)  # tokens that it may sample

    async def generate(self, prompt: Prompt) -> Generation:
        whole = await super().generate(prompt)
        for token, logprob in zip(whole.tokens, whole.logprobs, strict=True):
            await self.let.acquire()
            if prompt.listen is not None:
                prompt.listen([token], [logprob])
        return whole


async def events(visited: Visit, path: str, body: Any) -> list[Any]:
    """Return the data of a stream's events."""
    found: list[Any] = []
    async with visited.client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                found.append(json.loads(line.removeprefix("data: ")))
    return found


def essence(visited: Visit) -> Any:
    return [
        (c.parent, c.messages, c.prompt, c.reply, c.completion, c.logprobs, c.finish)
        for c in visited.session.graph.calls
    ]


CHAT = ("/v1/chat/completions", {"model": "m", "messages": START, "logprobs": True})
RESPONSES = (
    "/v1/responses",
    {"model": "m", "input": "go up", "include": ["message.output_text.logprobs"]},
)
MESSAGES = ("/anthropic/v1/messages", {"model": "m", "max_tokens": 40, "messages": START})


def words_of(path: str, shown: list[Any]) -> list[str]:
    if path == CHAT[0]:
        deltas = [choice["delta"] for event in shown for choice in event["choices"]]
        return [delta["content"] for delta in deltas if delta.get("content")]
    if path == RESPONSES[0]:
        return [e["delta"] for e in shown if e["type"] == "response.output_text.delta"]
    return [e["delta"]["text"] for e in shown if e["type"] == "content_block_delta"]


@pytest.mark.parametrize(("path", "body"), [CHAT, RESPONSES, MESSAGES])
def test_a_stream_carries_words_as_they_are_sampled_and_leaves_the_same_record(
    path: str, body: Any
) -> None:
    async def run() -> None:
        limit = {CHAT[0]: "max_tokens", RESPONSES[0]: "max_output_tokens"}.get(path, "max_tokens")
        asked = {**body, limit: 40}
        async with visit(resident()) as visited:
            whole = (await visited.post(path, asked)).raise_for_status().json()
            wanted = essence(visited)
        async with visit(resident()) as visited:
            shown = await events(visited, path, asked)
            assert essence(visited) == wanted
        words = words_of(path, shown)
        assert len(words) > 5
        text = {
            CHAT[0]: lambda: whole["choices"][0]["message"]["content"],
            RESPONSES[0]: lambda: whole["output"][0]["content"][0]["text"],
            MESSAGES[0]: lambda: whole["content"][0]["text"],
        }[path]()
        assert "".join(words) == text
        if path == CHAT[0]:
            choices = [choice for event in shown for choice in event["choices"]]
            known = [t for c in choices if c.get("logprobs") for t in c["logprobs"]["content"]]
            assert known == whole["choices"][0]["logprobs"]["content"]
            assert sum(bool(choice.get("logprobs")) for choice in choices) > 5
        if path == RESPONSES[0]:
            known = whole["output"][0]["content"][0]["logprobs"]
            deltas = [e for e in shown if e["type"] == "response.output_text.delta"]
            parts = [token for delta in deltas for token in delta["logprobs"]]
            assert parts == known[: len(parts)] and len(parts) > 5
            assert shown[-1]["response"]["output"] == whole["output"]

    asyncio.run(run())


def test_words_come_before_the_reply_is_whole_and_a_call_only_then() -> None:
    async def run() -> None:
        model = Spelt(f"Going up.\n{UP}")
        path, body = CHAT
        spelt = renderer().reply(f"Going up.\n{UP}")
        early = len(renderer().reply("Going up.\n")) + 6  # the tag has begun
        async with visit(model, keepalive=30.0) as visited:
            for _ in range(early):
                model.let.release()
            asked = {**body, "tools": [TOOL], "stream": True}
            async with visited.client.stream("POST", path, json=asked) as answer:
                lines = answer.aiter_lines()
                output = ""
                async for line in lines:
                    if line.startswith("data: {"):
                        (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                        output += choice["delta"].get("content") or ""
                    if output == "Going up.":
                        break
                assert not visited.session.graph.calls  # it is still being sampled
                for _ in range(len(spelt)):
                    model.let.release()
                rest = [line async for line in lines if line.startswith("data: {")]
            deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in rest]
            assert not any(delta.get("content") for delta in deltas)
            (calls,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
            assert calls[0]["function"] == {"name": "act", "arguments": '{"action": "up"}'}

    asyncio.run(run())


def test_a_disconnect_amid_the_text_leaves_the_whole_reply_recorded() -> None:
    async def run() -> None:
        model = Spelt("up and up and up", "down")
        path, body = CHAT
        async with visit(model, keepalive=30.0) as visited:
            model.let.release()
            model.let.release()
            asked = {**body, "stream": True}
            async with visited.client.stream("POST", path, json=asked) as answer:
                await anext(answer.aiter_raw())
            for _ in range(99):
                model.let.release()
            more = [*START, {"role": "assistant", "content": "up and up and up"}, *START]
            again = (await visited.chat(more)).json()
            assert again["palaestra"]["parent"] == 0
            first, _ = visited.session.graph.calls
            assert first.completion == tuple(renderer().reply("up and up and up"))

    asyncio.run(run())


TAGS = ["<tool_call>", "</tool_call>", '{"name": "act"}', "<tool", " ", "\n", "up", "é", "STOP", UP]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(TAGS), max_size=8).map("".join),
    st.sampled_from([(), ("STOP",), ("OP", "up S"), ("l>",)]),
    st.booleans(),
)
def test_the_streamed_text_is_a_prefix_of_the_whole_reply(
    text: str, stop: Sequence[str], tools: bool
) -> None:
    question = Question((), (ACT,) if tools else (), stop=tuple(stop))
    cuts = [text.index(one) for one in stop if one in text]
    words = text[: min(cuts, default=len(text))]
    if tools:
        words, _ = hermes_tags.parsed(words)
    sure, output = CertainPrefix(question.stop, calls=question.calls), ""
    for place, character in enumerate(text, 1):
        output += sure.more(character)
        assert words.startswith(output)
        assert output.startswith(
            CertainPrefix(question.stop, calls=question.calls).more(text[:place])
        )


def shown(text: str, question: Question) -> str:
    return CertainPrefix(question.stop, calls=question.calls).more(text)


def test_words_are_held_back_no_longer_than_they_may_be_a_call() -> None:
    question = Question((), (ACT,))
    assert shown("a < b and c <t", question) == "a < b and c"
    assert shown("a < b and c <to be", question) == "a < b and c <to be"
    assert shown(f"One. {UP} two", question) == "One.  two"
    assert shown("a <tool_call>", Question((), (ACT,), tool_choice="none")) == "a <tool_call>"


def test_streaming_takes_time_linear_in_the_reply() -> None:
    """The number of tokens decoded again per token does not grow with the reply's length."""
    decoded = 0

    class Counting(ChatMLRenderer):
        def text(self, tokens: Sequence[int]) -> str:
            nonlocal decoded
            decoded += len(tokens)
            return super().text(tokens)

    own = Counting(renderer().tokenizer)
    question = Question((), (ACT,), stop=("STOP",))
    each = []
    for count in (100, 1600):
        tokens = own.reply("up and 𝄞 down " * count)
        streamed, decoded = StreamedReply(question, own, native=False), 0
        for token in tokens:
            streamed.listen([token], [0.0])
            streamed.next_chunk()
        each.append(decoded / len(tokens))
    assert each[1] < 1.5 * each[0]


@pytest.mark.parametrize("name", ["qwen3", "minimax", "gpt_oss"])
def test_reasoning_and_words_of_a_family_are_sent_during_sampling(name: str) -> None:
    """In the model's own form: first the thought, then the words, no tag, and no call."""
    own = tiny(name)
    call = ToolCall("act", {"action": "up"}, "abcdefghi")
    words = "" if name == "gpt_oss" else "I climb."  # it has no words beside a call
    tokens = own.reply(assistant(words, reasoning="Up or down?", tool_calls=[call]))
    streamed = StreamedReply(Question((), (ACT,)), own, native=True)
    sent = []
    for token in tokens:
        streamed.listen([token], [0.0])
        sent.append(streamed.next_chunk() or Chunk("", "", ()))
    reply = own.parse(own.text(tokens))
    assert (reply.text, reply.reasoning) == (words, "Up or down?")
    assert "".join(chunk.text for chunk in sent) == words
    assert "".join(chunk.reasoning for chunk in sent) == "Up or down?"
    assert len([chunk for chunk in sent if chunk.reasoning]) > 3
    generation = Generation(words, tuple(tokens), (), Finish.STOP, "policy", 0)
    answer = Answer(0, 0, None, replace(generation, reasoning=reply.reasoning), words)
    assert streamed.rest(answer) == Chunk("", "", ())


def test_calls_that_a_program_cannot_take_are_not_sent_before_the_reply_is_whole() -> None:
    own = tiny("qwen3")
    streamed = StreamedReply(Question((), (ACT,), tool_choice="none"), own, native=True)
    streamed.listen(own.reply(assistant("I climb.", reasoning="Up?")), [])
    assert streamed.next_chunk() is None
