"""Other features that clients use: references, hosted tools, choices, counts, texts, images."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import openai
import pytest

from palaestra.core.message import Image, user
from palaestra.core.model import Generation, Prompt
from palaestra.models.remote.anthropic_protocol import ANTHROPIC
from palaestra.models.remote.openai_protocol import OPENAI
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer
from tests.gateway.test_protocols import CHAT_TOOL, FLAT_TOOL, START, UP, client, scripted
from tests.gateway.visits import visit

NAMED = '<tool_call>\n{"name": "stairs.act", "arguments": {"action": "up"}}\n</tool_call>'
PATCH = '<tool_call>\n{"name": "patch", "arguments": {"input": "*** a\\n"}}\n</tool_call>'
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and more").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0 and more").decode()


def image(data: str) -> Image:
    return Image.of(base64.b64decode(data))


def test_items_are_continued_by_their_ids_alone() -> None:
    """The default of the Vercel AI SDK."""

    async def run() -> None:
        async with visit(scripted(f"Now.\n{UP}", "done")) as visited:
            ask = client(visited).responses.create
            first = await ask(model="m", input=START, tools=[FLAT_TOOL])
            words, call = first.output
            assert call.type == "function_call"
            items: Any = [
                *START,
                {"type": "item_reference", "id": words.id},
                {"type": "item_reference", "id": call.id},
                {"type": "function_call_output", "call_id": call.call_id, "output": "ok"},
            ]
            second = await ask(model="m", input=items, tools=[FLAT_TOOL])
            assert second.output_text == "done"
            assert [call.parent for call in visited.session.graph.calls] == [None, 0]
            unknown: Any = [{"type": "item_reference", "id": "msg_77"}]
            with pytest.raises(openai.BadRequestError, match="msg_77"):
                await ask(model="m", input=unknown)

    asyncio.run(run())


CODEX: Any = [
    {"type": "web_search"},
    {"type": "local_shell"},
    {
        "type": "namespace",
        "name": "stairs",
        "description": "",
        "tools": [FLAT_TOOL, {"type": "web_search"}],
    },
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark"}},
]


def test_tools_of_namespaces_and_free_texts_are_called_and_hosted_ones_left_out() -> None:
    async def run() -> None:
        async with visit(scripted(f"{NAMED}{PATCH}", "done")) as visited:
            body: Any = {"model": "m", "tools": CODEX}
            whole = (await visited.post("/v1/responses", {**body, "input": START})).json()
            assert whole["palaestra"]["ignored"] == [
                "tools.format",  # a grammar is not forced
                "tools.web_search",
                "tools.local_shell",
            ]
            named, free = whole["output"]
            assert (named["type"], named["namespace"], named["name"]) == (
                "function_call",
                "stairs",
                "act",
            )
            assert (free["type"], free["name"], free["input"]) == (
                "custom_tool_call",
                "patch",
                "*** a\n",
            )
            answers = [
                {"type": "function_call_output", "call_id": named["call_id"], "output": "ok"},
                {"type": "custom_tool_call_output", "call_id": free["call_id"], "output": "ok"},
            ]
            more = {**body, "input": [*START, named, free, *answers]}
            assert (await visited.post("/v1/responses", more)).status_code == 200
            assert [call.parent for call in visited.session.graph.calls] == [None, 0]
            received = visited.session.graph.calls[0].messages[0].text
            assert "stairs.act" in received and "web_search" not in received

    asyncio.run(run())


def test_a_free_text_is_streamed_as_the_protocol_says() -> None:
    async def run() -> None:
        async with visit(scripted(PATCH)) as visited:
            tools: Any = CODEX[3:]
            async with client(visited).responses.stream(
                model="m", input="start", tools=tools
            ) as stream:
                kinds = [event.type async for event in stream]
                whole = await stream.get_final_response()
            assert "response.custom_tool_call_input.delta" in kinds
            (item,) = whole.output
            assert item.type == "custom_tool_call" and item.input == "*** a\n"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "tool", "name"),
    [
        ("/v1/chat/completions", {"type": "custom", "custom": {"name": "x"}}, "tools.custom"),
        (
            "/anthropic/v1/messages",
            {"type": "web_search_20250305", "name": "web_search"},
            "tools.web_search_20250305",
        ),
    ],
)
def test_hosted_tools_of_other_protocols_are_left_out_and_named(
    path: str, tool: Any, name: str
) -> None:
    async def run() -> None:
        async with visit(scripted("up")) as visited:
            body = {"model": "m", "max_tokens": 9, "messages": START, "tools": [tool]}
            assert (await visited.post(path, body)).json()["palaestra"]["ignored"] == [name]

    asyncio.run(run())


def test_tools_may_be_null() -> None:
    async def run() -> None:
        async with visit(scripted(*["up"] * 3)) as visited:
            body = {"model": "m", "max_tokens": 9, "messages": START, "input": "x", "tools": None}
            for path in ("/v1/chat/completions", "/v1/responses", "/anthropic/v1/messages"):
                assert (await visited.post(path, body)).status_code == 200

    asyncio.run(run())


class Counting(ScriptedModel):
    """Replies with the number of its calls."""

    asked = 0

    async def generate(self, prompt: Prompt) -> Generation:
        self.asked += 1
        self._script = lambda _: f"up {self.asked}"
        return await super().generate(prompt)


def test_each_of_several_choices_is_a_call_and_any_can_be_continued() -> None:
    async def run() -> None:
        model = Counting([], renderer=renderer())
        async with visit(model) as visited:
            ask = client(visited).chat.completions.create
            reply = await ask(model="m", messages=START, n=3)
            words = [choice.message.content for choice in reply.choices]
            assert words == ["up 1", "up 2", "up 3"]
            assert [choice.index for choice in reply.choices] == [0, 1, 2]
            assert reply.usage is not None
            calls = visited.session.graph.calls
            assert [call.parent for call in calls] == [None] * 3
            assert reply.usage.completion_tokens == sum(len(call.completion) for call in calls)
            assert reply.usage.prompt_tokens == len(calls[0].prompt)
            more: Any = [*START, {"role": "assistant", "content": "up 2"}, *START]
            again = await ask(model="m", messages=more)
            assert again.model_extra is not None
            assert again.model_extra["palaestra"]["parent"] == 1

    asyncio.run(run())


def test_prompts_are_completed_and_their_tokens_recorded() -> None:
    async def run() -> None:
        async with visit(ScriptedModel(lambda _: "up and on", renderer=renderer())) as visited:
            ask = client(visited).completions.create
            reply = await ask(model="m", prompt=["go", "on"], n=2, logprobs=0, stop=" on", seed=1)
            assert [choice.text for choice in reply.choices] == ["up and"] * 4
            calls = visited.session.graph.calls
            assert [call.messages[0].text for call in calls] == ["go", "go", "on", "on"]
            known = reply.choices[0].logprobs
            assert known is not None and known.token_logprobs == list(calls[0].logprobs)
            assert known.tokens == renderer().token_strings(calls[0].completion)
            assert reply.usage is not None and reply.model_extra is not None
            assert reply.usage.completion_tokens == sum(len(call.completion) for call in calls)
            assert reply.model_extra["palaestra"]["ignored"] == ["seed"]
            stream = await ask(model="m", prompt="go", stream=True)
            received = [choice async for chunk in stream for choice in chunk.choices]
            assert "".join(choice.text for choice in received) == "up and on"
            assert received[-1].finish_reason == "stop"

    asyncio.run(run())


def test_prompts_are_counted_as_they_would_be_sent_and_not_recorded() -> None:
    async def run() -> None:
        async with visit(scripted("up")) as visited:
            body = {"model": "m", "system": "Be.", "messages": START}
            path = "/anthropic/v1/messages"
            counted = (await visited.post(f"{path}/count_tokens", body)).json()
            assert not visited.session.graph.calls
            asked = (await visited.post(path, {**body, "max_tokens": 9})).json()
            assert counted == {"input_tokens": asked["usage"]["input_tokens"]}

    asyncio.run(run())


def test_a_model_is_found_by_any_name() -> None:
    async def run() -> None:
        async with visit(scripted("up")) as visited:
            for name in ("m", "openai/gpt-5"):
                assert (await client(visited).models.retrieve(name)).id == name

    asyncio.run(run())


SHOWN: Any = {
    "/v1/chat/completions": lambda url: {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See."},
                    {"type": "image_url", "image_url": {"url": url}},
                ],
            }
        ]
    },
    "/v1/responses": lambda url: {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "See."},
                    {"type": "input_image", "image_url": url},
                ],
            }
        ]
    },
    "/anthropic/v1/messages": lambda url: {
        "max_tokens": 9,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See."},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64" if url.startswith("data:") else "url",
                            "media_type": "image/jpeg",
                            "data": url.partition(",")[2],
                        },
                    },
                ],
            }
        ],
    },
}


@pytest.mark.parametrize("path", SHOWN)
def test_images_reach_a_model_that_sees_as_they_were_sent(path: str) -> None:
    seen: list[Any] = []

    class Seeing(ScriptedModel):
        async def generate(self, prompt: Prompt) -> Generation:
            seen.append(prompt)
            return await super().generate(prompt)

    async def run() -> None:
        async with visit(Seeing(lambda _: "up")) as visited:
            for data in (PNG, JPEG):
                body = {"model": "m", **SHOWN[path](f"data:image/x;base64,{data}")}
                assert (await visited.post(path, body)).status_code == 200
                (message,) = seen[-1].messages
                assert message == user("See.", image(data))
            shown = OPENAI.request("m", seen[-1])["messages"][0]["content"][1]
            assert shown["image_url"]["url"] == f"data:image/jpeg;base64,{JPEG}"
            block = ANTHROPIC.request("m", seen[-1])["messages"][0]["content"][1]
            assert block["source"]["media_type"] == "image/jpeg"
            for url in ("https://example.org/a.png", "data:image/png;base64,!", "data:,x"):
                answer = await visited.post(path, {"model": "m", **SHOWN[path](url)})
                assert answer.status_code == 400
                assert "image" in answer.json()["error"]["message"]
        async with visit(scripted("up")) as visited:
            body = {"model": "m", **SHOWN[path](f"data:image/png;base64,{PNG}")}
            answer = await visited.post(path, body)
            assert answer.status_code == 400
            assert "reads text only" in answer.json()["error"]["message"]
            assert not visited.session.graph.calls

    asyncio.run(run())


def test_what_a_tool_shows_is_seen() -> None:
    async def run() -> None:
        async with visit(ScriptedModel(lambda _: "up")) as visited:
            part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
            call = {"id": "c", "type": "function", "function": {"name": "act", "arguments": "{}"}}
            talk = [
                *START,
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": [part]},
            ]
            await visited.chat(talk, tools=[CHAT_TOOL])
            (asked,) = visited.session.graph.calls
            assert asked.messages[-1].images == (image(PNG),)

    asyncio.run(run())
