"""Models whose chat template supports tools: parts round-trip token for token."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from palaestra.core.message import ToolCall, tool_result, user
from palaestra.core.session import Session
from palaestra.core.tool import Tool
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import KEY, TASK, Acting, Stairs
from tests.gateway.test_message_parts import chat_sdk, of_functions, of_inputs
from tests.gateway.test_streams import CHAT, MESSAGES, RESPONSES, essence, events, words_of
from tests.gateway.visits import SAMPLING, visit
from tests.models.renderers.templating import renderer

TEMPLATES = ("qwen2_5", "smollm3", "llama3", "mistral")
ACT = Tool("act", "Act.", {"type": "object", "properties": {"action": {"type": "string"}}})
UP = '<tool_call>\n{"name": "act", "arguments": {"action": "up"}}\n</tool_call>'
START: Any = [{"role": "user", "content": "go up"}]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_conversation_of_calls_is_the_one_of_this_process(template: str) -> None:
    async def through() -> Any:
        async with visit(ScriptedModel([UP, "Done."], renderer=renderer(template))) as visited:
            ask: Any = chat_sdk(visited).chat.completions.create
            tools = of_functions(ACT)
            first = await ask(model="m", messages=START, tools=tools, reasoning_effort="low")
            (call,) = first.choices[0].message.tool_calls
            assert call.id and call.function.arguments == '{"action": "up"}'
            ignored = first.model_extra["palaestra"]["ignored"]
            assert ignored == ["reasoning_effort"]
            result = {"role": "tool", "tool_call_id": call.id, "content": "You rose."}
            talk = [*START, first.choices[0].message, result]
            second = await ask(model="m", messages=talk, tools=tools)
            assert second.choices[0].message.content == "Done."
            (made,) = visited.session.graph.calls[0].reply.tool_calls
            assert made == ToolCall("act", {"action": "up"}, call.id)
            return essence(visited), [call.tools for call in visited.session.graph.calls]

    async def here() -> Any:
        model = ScriptedModel([UP, "Done."], renderer=renderer(template))
        session = Session(KEY, TASK, Stairs(), Acting(), {"agent": model}, sampling=SAMPLING)
        talk = [user("go up")]
        first = await session.generate(talk, tools=[ACT])
        (call,) = first.tool_calls
        talk += [first.message, tool_result("You rose.", id=call.id, name="act")]
        await session.generate(talk, tools=[ACT])
        calls = session.graph.calls
        record = [
            (c.parent, c.messages, c.prompt, c.reply, c.completion, c.logprobs, c.finish)
            for c in calls
        ]
        return record, [call.tools for call in calls]

    ours, theirs = asyncio.run(through()), asyncio.run(here())
    assert ours == theirs
    assert ours[0][1][0] == 0, "it continues the branch"


@pytest.mark.parametrize(("path", "body"), [CHAT, RESPONSES, MESSAGES])
def test_the_resident_model_streams_what_it_replies_whole_with_tools(path: str, body: Any) -> None:
    """Noise, with tools in its own template: the chunks together equal the whole reply."""
    network = tiny_network(49152, layers=1, width=32, heads=2, context=2048, seed=3)
    shapes: Any = {CHAT[0]: of_functions, MESSAGES[0]: of_inputs}
    limit = "max_output_tokens" if path == RESPONSES[0] else "max_tokens"
    flat = [{"type": "function", **of_functions(ACT)[0]["function"]}]
    asked = {**body, limit: 40, "tools": shapes[path](ACT) if path in shapes else flat}

    def resident() -> ResidentModel:
        return ResidentModel("policy", network, renderer("qwen2_5"), context=2048)

    async def run() -> None:
        async with visit(resident()) as visited:
            (await visited.post(path, asked)).raise_for_status()
            wanted = essence(visited)
            assert visited.session.graph.calls[0].tools[0].name == "act"
        async with visit(resident()) as visited:
            sent = await events(visited, path, asked)
            assert essence(visited) == wanted
            (call,) = visited.session.graph.calls
            assert "".join(words_of(path, sent)) == call.reply.text
            assert len(call.completion) == len(call.logprobs) > 0

    asyncio.run(run())


@pytest.mark.parametrize("choice", ["required", "named"])
@pytest.mark.parametrize("template", ["qwen2_5", "mistral"])
def test_a_program_can_require_a_call_of_the_resident_model(template: str, choice: str) -> None:
    """Noise, which would call nothing by itself."""
    pytest.importorskip("llguidance", reason="pip install 'palaestra[serving]'")
    rendered = renderer(template)
    vocabulary = json.loads(rendered.vocabulary() or "{}")
    size = len(vocabulary["model"]["vocab"]) + len(vocabulary["added_tokens"])
    network = tiny_network(size, layers=1, width=8, heads=2, context=2048, seed=3)
    limited = {"type": "object", "properties": {"action": {"enum": ["up", "fall"]}}}
    act, rest = (
        Tool(name, "Act.", {**limited, "required": ["action"]}) for name in ("act", "rest")
    )
    named = {"type": "function", "function": {"name": "rest"}}

    async def run() -> None:
        async with visit(ResidentModel("policy", network, rendered, context=2048)) as visited:
            answer = await chat_sdk(visited).chat.completions.create(
                model="m",
                messages=START,
                tools=of_functions(act, rest),
                tool_choice=named if choice == "named" else choice,
                parallel_tool_calls=False,
                max_completion_tokens=200,
            )
            (call,) = answer.choices[0].message.tool_calls
            assert call.function.name == "rest" or choice == "required"
            assert json.loads(call.function.arguments)["action"] in ("up", "fall")
            assert answer.choices[0].finish_reason == "tool_calls"
            assert answer.model_extra["palaestra"]["ignored"] == []
            (made,) = visited.session.graph.calls
            assert made.policy == "policy|grammar" and not made.reply.text
            free = await chat_sdk(visited).chat.completions.create(
                model="m", messages=START, tools=of_functions(act), parallel_tool_calls=False
            )
            assert free.model_extra["palaestra"]["ignored"] == ["parallel_tool_calls"]

    asyncio.run(run())
