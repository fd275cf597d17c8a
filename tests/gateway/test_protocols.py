"""Each protocol through its official SDK: OpenAI's two, Anthropic's, MCP, and plain JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from palaestra.core.environment import Action, Transition
from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer
from tests.gateway.visits import Visit, visit

UP = '<tool_call>\n{"name": "act", "arguments": {"action": "up"}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"action": {"type": "string"}}}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "act", "parameters": SCHEMA}}
FLAT_TOOL: Any = {"type": "function", "name": "act", "parameters": SCHEMA}
START: Any = [{"role": "user", "content": "start"}]


def scripted(*replies: str) -> ScriptedModel:
    return ScriptedModel(replies, renderer=renderer())


def client(visited: Visit) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{visited.address}/v1", api_key=visited.endpoint.token, max_retries=0
    )


def test_chat_completions_bring_words_several_calls_and_logprobs() -> None:
    async def run() -> None:
        async with visit(scripted(f"Both.\n{UP}{UP}")) as visited:
            reply = await client(visited).chat.completions.create(
                model="m", messages=START, tools=[CHAT_TOOL], logprobs=True, seed=3
            )
            (choice,) = reply.choices
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Both.")
            calls: Any = choice.message.tool_calls
            assert [call.function.arguments for call in calls] == ['{"action": "up"}'] * 2
            assert len({call.id for call in calls}) == 2
            assert choice.logprobs is not None
            known = choice.logprobs.content or []
            (call,) = visited.session.graph.calls
            assert [token.logprob for token in known] == list(call.logprobs)
            assert reply.usage is not None
            assert reply.usage.prompt_tokens == len(call.prompt)
            assert reply.model_extra is not None
            assert reply.model_extra["palaestra"]["ignored"] == ["seed"]

    asyncio.run(run())


def test_streamed_chat_completions_are_the_whole_ones_in_parts() -> None:
    async def run() -> None:
        async with visit(scripted(f"Now.\n{UP}")) as visited:
            words, calls, ends = "", [], []
            stream = await client(visited).chat.completions.create(
                model="m",
                messages=START,
                tools=[CHAT_TOOL],
                stream=True,
                stream_options={"include_usage": True},
            )
            usage = None
            async for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    words += choice.delta.content or ""
                    calls += choice.delta.tool_calls or []
                    ends += [choice.finish_reason] if choice.finish_reason else []
            assert (words, ends) == ("Now.", ["tool_calls"])
            assert [call.function.name for call in calls if call.function] == ["act"]
            assert usage is not None and usage.completion_tokens > 1

    asyncio.run(run())


def test_stop_strings_and_limits_are_honoured_and_a_temperature_only_where_it_may_be() -> None:
    async def run() -> None:
        async with visit(scripted("up and down", "up up up up"), temperature=True) as visited:
            ask = client(visited).chat.completions.create
            stopped = await ask(model="m", messages=START, stop=" and")
            assert stopped.choices[0].message.content == "up"
            more: Any = [*START, {"role": "assistant", "content": "up"}, *START]
            cut = await ask(model="m", messages=more, max_tokens=2, temperature=0.25)
            assert cut.choices[0].finish_reason == "length"
            assert cut.model_extra is not None
            assert cut.model_extra["palaestra"] | {"parent": 0} == cut.model_extra["palaestra"]
            assert cut.model_extra["palaestra"]["ignored"] == []
        async with visit(scripted("up")) as visited:
            reply = (await visited.chat(START, temperature=0.25)).json()
            assert reply["palaestra"]["ignored"] == ["temperature"]

    asyncio.run(run())


def test_responses_bring_calls_and_go_on_by_items_or_by_id() -> None:
    async def run() -> None:
        async with visit(scripted(UP, "done", "again")) as visited:
            ask = client(visited).responses.create
            first = await ask(model="m", instructions="Be.", input="start", tools=[FLAT_TOOL])
            (call,) = first.output
            assert call.type == "function_call" and call.arguments == '{"action": "up"}'
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}
            items: Any = [*START, call.model_dump(exclude_none=True), result]
            second = await ask(model="m", instructions="Be.", input=items, tools=[FLAT_TOOL])
            assert second.output_text == "done"
            third = await ask(
                model="m",
                instructions="Be.",
                input="more",
                tools=[FLAT_TOOL],
                previous_response_id=second.id,
            )
            assert third.output_text == "again"
            assert [call.parent for call in visited.session.graph.calls] == [None, 0, 1]

    asyncio.run(run())


def test_streamed_responses_are_the_whole_ones_in_parts() -> None:
    async def run() -> None:
        async with visit(scripted(f"Now.\n{UP}")) as visited:
            kinds, words = [], ""
            ask = client(visited).responses
            async with ask.stream(model="m", input="start", tools=[FLAT_TOOL]) as stream:
                async for event in stream:
                    kinds.append(event.type)
                    words += event.delta if event.type == "response.output_text.delta" else ""
                whole = await stream.get_final_response()
            assert (words, kinds[0], kinds[-1]) == (
                "Now.",
                "response.created",
                "response.completed",
            )
            assert [item.type for item in whole.output] == ["message", "function_call"]

    asyncio.run(run())


def test_anthropics_messages_bring_calls_and_go_on() -> None:
    async def run() -> None:
        async with visit(scripted(f"Now.\n{UP}", "done")) as visited:
            tool = {"name": "act", "input_schema": SCHEMA}
            body = {"model": "m", "max_tokens": 100, "system": "Be.", "tools": [tool]}
            headers = {"Authorization": "", "x-api-key": visited.endpoint.token}
            answer = await visited.post(
                "/anthropic/v1/messages", {**body, "messages": START}, headers=headers
            )
            first = answer.json()
            assert first["stop_reason"] == "tool_use"
            assert [block["type"] for block in first["content"]] == ["text", "tool_use"]
            result = {"type": "tool_result", "tool_use_id": first["content"][1]["id"]}
            talk = [
                *START,
                {"role": "assistant", "content": first["content"]},
                {"role": "user", "content": [{**result, "content": "ok"}]},
            ]
            second = await visited.post("/anthropic/v1/messages", {**body, "messages": talk})
            assert second.json()["content"] == [{"type": "text", "text": "done"}]
            assert second.json()["stop_reason"] == "end_turn"
            assert [call.parent for call in visited.session.graph.calls] == [None, 0]

    asyncio.run(run())


def test_anthropics_sdk_streams_words_and_calls() -> None:
    anthropic = pytest.importorskip("anthropic", reason="the SDK is not in the dev extra")

    async def run() -> None:
        async with visit(scripted(f"Now.\n{UP}")) as visited:
            url, key = f"{visited.address}/anthropic", visited.endpoint.token
            asked = {"model": "m", "max_tokens": 100, "messages": START}
            tools = [{"name": "act", "input_schema": SCHEMA}]
            sdk = anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0)
            async with sdk.messages.stream(**asked, tools=tools) as stream:
                whole = await stream.get_final_message()
            assert whole.content[0].text == "Now."
            assert whole.content[1].input == {"action": "up"}

    asyncio.run(run())


class Tooled(Stairs):
    """Stairs with a tool of their own."""

    tools = (Tool("climb", "Go up.", {"type": "object", "properties": {"steps": {}}}),)

    async def step(self, action: Action) -> tuple[Transition, Any]:
        self.called = action.call
        return await super().step(Action("up"))


def test_mcp_offers_the_worlds_tools_and_acts_by_them() -> None:
    async def run() -> None:
        world = Tooled()
        async with visit(scripted("up"), world=world) as visited:
            hello = (await visited.rpc("initialize", protocolVersion="2025-06-18")).json()
            assert hello["result"]["protocolVersion"] == "2025-06-18"
            assert "Climb the stairs." in hello["result"]["instructions"]
            listed = (await visited.rpc("tools/list")).json()["result"]["tools"]
            assert [tool["name"] for tool in listed] == ["climb", "look"]
            await visited.chat(START)
            called = await visited.rpc("tools/call", name="climb", arguments={"steps": 1})
            assert called.json()["result"]["content"][0]["text"] == "You are on step 1 of 3."
            assert world.called == ToolCall("climb", {"steps": 1})
            (step,) = visited.session.steps
            assert step.call == 0
            seen = await visited.rpc("tools/call", name="look")
            assert "step 1 of 3" in seen.json()["result"]["content"][0]["text"]
            assert len(visited.session.steps) == 1

    asyncio.run(run())


class Growing(Tooled):
    """A second tool comes with the first step."""

    async def step(self, action: Action) -> tuple[Transition, Any]:
        self.tools = (*Tooled.tools, Tool("rest", "Wait.", {"type": "object", "properties": {}}))
        return await super().step(action)


def test_tools_that_come_later_are_listed_and_called_by_every_protocol() -> None:
    async def run() -> None:
        async with visit(scripted("up"), world=Growing()) as visited:
            await visited.rpc("tools/call", name="climb", arguments={"steps": 1})
            listed = (await visited.rpc("tools/list")).json()["result"]["tools"]
            assert [tool["name"] for tool in listed] == ["climb", "rest", "look"]
            shown = (await visited.client.get("/world")).json()["tools"]
            assert [tool["name"] for tool in shown] == ["climb", "rest"]
            called = await visited.rpc("tools/call", name="rest", arguments={})
            assert called.json()["result"]["content"][0]["text"] == "You are on step 2 of 3."

    asyncio.run(run())


def test_a_text_environment_has_the_tool_act_and_its_end_is_reported() -> None:
    async def run() -> None:
        async with visit(scripted("up"), world=Stairs(1)) as visited:
            listed = (await visited.rpc("tools/list")).json()["result"]["tools"]
            assert [tool["name"] for tool in listed] == ["act", "look"]
            done = (await visited.rpc("tools/call", name="act", arguments={"action": "up"})).json()
            assert done["result"]["_meta"]["palaestra/over"]
            assert (await visited.life).outcome.solved

    asyncio.run(run())


def test_the_mcp_sdk_lists_and_calls() -> None:
    mcp = pytest.importorskip("mcp", reason="the SDK is not in the dev extra")
    if not hasattr(mcp, "Client"):
        pytest.skip("written for version 2 of the SDK")

    async def run() -> None:
        async with visit(scripted("up")) as visited:
            url = f"{visited.address}/mcp?token={visited.endpoint.token}"
            async with mcp.Client(url) as sdk:
                tools = await sdk.list_tools()
                assert [tool.name for tool in tools.tools] == ["act", "look"]
                result = await sdk.call_tool("act", {"action": "up"})
                assert result.content[0].text == "You are on step 1 of 3."

    asyncio.run(run())


def test_plain_json_shows_the_world_and_acts() -> None:
    async def run() -> None:
        async with visit(scripted("up")) as visited:
            view = (await visited.client.get("/world")).json()
            assert view["observation"] == "You are on step 0 of 3." and not view["over"]
            wrong = (await visited.post("/world/step", {"action": "fly"})).json()
            assert (wrong["valid"], wrong["over"]) == (False, False)
            for _ in range(3):
                last = (await visited.post("/world/step", {"action": "up"})).json()
            assert (last["over"], last["outcome"]) == (True, "success")

    asyncio.run(run())
