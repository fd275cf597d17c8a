"""Results of parallel calls are put in the order of the calls, in whatever order they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer
from tests.gateway.visits import visit

CALL = '<tool_call>\n{{"name": "act", "arguments": {{"action": "{}"}}}}\n</tool_call>'
START: Any = [{"role": "user", "content": "start"}]
SCHEMA = {"type": "object"}

Body = dict[str, Any]


def chat(first: Any, results: list[tuple[str, str]]) -> Body:
    tool = {"type": "function", "function": {"name": "act", "parameters": SCHEMA}}
    body: Body = {"model": "m", "messages": [*START], "tools": [tool]}
    if first is not None:
        body["messages"] += [first["choices"][0]["message"]]
        body["messages"] += [
            {"role": "tool", "tool_call_id": id, "content": words} for id, words in results
        ]
    return body


def responses(first: Any, results: list[tuple[str, str]]) -> Body:
    tool = {"type": "function", "name": "act", "parameters": SCHEMA}
    body: Body = {"model": "m", "input": [*START], "tools": [tool]}
    if first is not None:
        body["input"] = [
            {"type": "function_call_output", "call_id": id, "output": words}
            for id, words in results
        ]
        body["previous_response_id"] = first["id"]
    return body


def messages(first: Any, results: list[tuple[str, str]]) -> Body:
    tool = {"name": "act", "input_schema": SCHEMA}
    body: Body = {"model": "m", "max_tokens": 200, "messages": [*START], "tools": [tool]}
    if first is not None:
        blocks = [
            {"type": "tool_result", "tool_use_id": id, "content": words} for id, words in results
        ]
        body["messages"] += [{"role": "assistant", "content": first["content"]}]
        body["messages"] += [{"role": "user", "content": blocks}]
    return body


def ids(path: str, first: Any) -> list[str]:
    """Of the calls in an answer."""
    if path.endswith("completions"):
        return [call["id"] for call in first["choices"][0]["message"]["tool_calls"]]
    if path.endswith("responses"):
        return [item["call_id"] for item in first["output"] if item["type"] == "function_call"]
    return [block["id"] for block in first["content"] if block["type"] == "tool_use"]


PROTOCOLS: Any = [
    ("/v1/chat/completions", chat),
    ("/v1/responses", responses),
    ("/anthropic/v1/messages", messages),
]


@pytest.mark.parametrize(("path", "body"), PROTOCOLS)
def test_results_in_any_order_are_put_in_the_order_of_their_calls(
    path: str, body: Callable[..., Body]
) -> None:
    async def run() -> None:
        model = ScriptedModel(
            [CALL.format("up") + CALL.format("fall"), "done"], renderer=renderer()
        )
        async with visit(model) as visited:
            first = (await visited.post(path, body(None, []))).raise_for_status().json()
            one, two = ids(path, first)
            asked = body(first, [(two, "you fell"), (one, "you rose")])
            again = (await visited.post(path, asked)).raise_for_status().json()
            assert again["palaestra"]["branch"] == "continues"
            shown = [message.text for message in visited.session.graph.calls[1].messages]
            assert ["rose" in words for words in shown] == [True, False]
            assert ["fell" in words for words in shown] == [False, True]

    asyncio.run(run())


@pytest.mark.parametrize(("path", "body"), PROTOCOLS)
def test_results_that_fit_no_call_or_not_all_are_refused(
    path: str, body: Callable[..., Body]
) -> None:
    async def run() -> None:
        model = ScriptedModel([CALL.format("up") * 2, "done"], renderer=renderer())
        async with visit(model) as visited:
            first = (await visited.post(path, body(None, []))).raise_for_status().json()
            one, two = ids(path, first)
            wrong = {
                "'other' belongs to no pending call": [(one, "x"), (two, "y"), ("other", "z")],
                "two results": [(one, "x"), (one, "y")],
                f"{two} have no result": [(one, "x")],
                f"{one} have no result": [(two, "x")],
            }
            for why, results in wrong.items():
                answer = await visited.post(path, body(first, results))
                assert answer.status_code == 400 and why in answer.text, (why, answer.text)
            assert len(visited.session.graph.calls) == 1

    asyncio.run(run())


def test_ids_that_come_again_with_each_reply_are_of_the_last_one() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "act", "arguments": "{}"}}
    output: Any = {"role": "assistant", "content": None, "tool_calls": [call]}
    result: Any = {"role": "tool", "tool_call_id": "c", "content": "seen"}

    async def run() -> None:
        async with visit(ScriptedModel(["up"] * 9, renderer=renderer())) as visited:
            assert (await visited.chat([*START, output, result, output, result])).status_code == 200
            twice = {**output, "tool_calls": [call, call]}
            for talk in ([output, result, result], [twice, result], [result]):
                assert (await visited.chat([*START, *talk])).status_code == 400
            nameless = {"role": "tool", "content": "seen"}
            assert (await visited.chat([*START, output, nameless])).status_code == 400

    asyncio.run(run())
