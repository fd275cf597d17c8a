"""Parts of messages pass through unchanged, as the SDKs of OpenAI and Anthropic see them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest

from palaestra.core.errors import ContextTooLong, InfrastructureFault, RequestRefused
from palaestra.core.message import (
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    assistant,
    system,
    tool_result,
    user,
)
from palaestra.core.model import Finish, Generation
from palaestra.core.tool import Tool
from tests.gateway.native_model import BOTH, Native, replied
from tests.gateway.visits import Visit, visit

PNG = Image.of(b"\x89PNG\r\n\x1a\n one")
JPEG = Image.of(b"\xff\xd8\xff\xe0 two")
SCHEMA = {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]}
ACT = Tool("act", "Act in the world.", SCHEMA)
REST = Tool("rest", "", {"type": "object", "properties": {}})
WHOLE = replied("Both.", *BOTH, reasoning="First up,\nthen down.", signature="sig==")

Run = Callable[[Visit], Awaitable[None]]


def chat_sdk(visited: Visit) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{visited.address}/v1", api_key=visited.endpoint.token, max_retries=0
    )


def messages_sdk(visited: Visit) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=f"{visited.address}/anthropic", api_key=visited.endpoint.token, max_retries=0
    )


def of_functions(*tools: Tool) -> Any:
    """Return the tools in the format of chat completions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in tools
    ]


def of_items(*tools: Tool) -> Any:
    """Return the tools in the format of responses."""
    return [{"type": "function", **one["function"]} for one in of_functions(*tools)]


def of_inputs(*tools: Tool) -> Any:
    """Return the tools in the format of Anthropic's messages."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
    ]


def through(model: Native, run: Run, **options: Any) -> None:
    async def visiting() -> None:
        async with visit(model, **options) as visited:
            await run(visited)

    asyncio.run(visiting())


def of_chat(message: Any) -> Generation:
    """Return a chat completion's message, as OpenAI's SDK parses it, as the model's reply."""
    calls = [
        ToolCall(call.function.name, json.loads(call.function.arguments), call.id)
        for call in message.tool_calls or ()
    ]
    thought = (message.model_extra or {}).get("reasoning_content", "")
    return replied(message.content or "", *calls, reasoning=thought)


def of_response(response: Any) -> Generation:
    """Return a response, as OpenAI's SDK parses it, as the model's reply."""
    calls, thought, signature = [], "", ""
    for item in response.output:
        if item.type == "reasoning":
            thought = "".join(part.text for part in item.content or ())
            signature = item.encrypted_content or ""
        if item.type == "function_call":
            calls.append(ToolCall(item.name, json.loads(item.arguments), item.call_id))
    return replied(response.output_text, *calls, reasoning=thought, signature=signature)


def of_message(message: Any) -> Generation:
    """Return a message, as Anthropic's SDK parses it, as the model's reply."""
    text, calls, thought, signature = "", [], "", ""
    for block in message.content:
        match block.type:
            case "text":
                text += block.text
            case "thinking":
                thought, signature = block.thinking, block.signature
            case "tool_use":
                calls.append(ToolCall(block.name, block.input, block.id))
    return replied(text, *calls, reasoning=thought, signature=signature)


REPLIES = [
    WHOLE,
    replied("Only words: é 𝄞\n"),
    replied("", *BOTH),
    replied("Thought of.", reasoning="Hm."),
    replied("", ToolCall("rest", {}, "toolu_01")),
]


# ── what the model replied is what the SDKs read ─────────────────────────────


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("given", REPLIES, ids=lambda given: given.text or "calls")
def test_a_chat_completion_is_the_models_reply(given: Generation, stream: bool) -> None:
    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).chat.completions
        asked = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
        asked["tools"] = of_functions(ACT, REST)
        if stream:
            options = {"include_usage": True}
            async with ask.stream(**asked, stream_options=options) as events:
                whole = await events.get_final_completion()
        else:
            whole = await ask.create(**asked)
        message = whole.choices[0].message
        assert of_chat(message) == replace(given, signature="")  # the protocol has none
        ended = "tool_calls" if given.tool_calls else "stop"
        assert whole.choices[0].finish_reason == ended
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (70, 20)
        assert whole.usage.prompt_tokens_details.cached_tokens == 40

    through(Native(given), run)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("given", REPLIES, ids=lambda given: given.text or "calls")
def test_a_response_is_the_models_reply(given: Generation, stream: bool) -> None:
    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).responses
        asked = {"model": "m", "input": "go", "tools": of_items(ACT, REST)}
        kinds: list[str] = []
        if stream:
            async with ask.stream(**asked) as events:
                async for event in events:
                    kinds.append(event.type)
                whole = await events.get_final_response()
        else:
            whole = await ask.create(**asked)
        assert of_response(whole) == given
        assert whole.status == "completed"
        assert (whole.usage.input_tokens, whole.usage.output_tokens) == (70, 20)
        assert whole.usage.input_tokens_details.cached_tokens == 40
        if stream:
            thinks = "response.reasoning_text.delta" in kinds
            assert thinks == bool(given.reasoning)
            assert kinds.count("response.output_item.added") == len(whole.output)
            assert kinds.count("response.output_item.done") == len(whole.output)

    through(Native(given), run)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("given", REPLIES, ids=lambda given: given.text or "calls")
def test_a_message_is_the_models_reply(given: Generation, stream: bool) -> None:
    async def run(visited: Visit) -> None:
        ask: Any = messages_sdk(visited).messages
        asked = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "go"}]}
        asked["tools"] = of_inputs(ACT, REST)
        if stream:
            async with ask.stream(**asked) as events:
                whole = await events.get_final_message()
        else:
            whole = await ask.create(**asked)
        assert of_message(whole) == given
        assert whole.stop_reason == ("tool_use" if given.tool_calls else "end_turn")
        usage = whole.usage
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (30, 40)
        assert usage.output_tokens == 20

    through(Native(given), run)


def test_a_reply_that_was_cut_reports_it() -> None:
    async def run(visited: Visit) -> None:
        sdk = chat_sdk(visited)
        chat = await sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "go"}]
        )
        assert chat.choices[0].finish_reason == "length"
        response = await sdk.responses.create(model="m", input="go")
        assert response.status == "incomplete"
        message = await messages_sdk(visited).messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "go"}]
        )
        assert message.stop_reason == "max_tokens"

    through(Native(*[replied("cu", finish=Finish.LENGTH)] * 3), run)


# ── what a program sends is what the model is asked ──────────────────────────


RESULTS = (
    tool_result("You rose.", id="call_a1", name="act", images=[PNG, JPEG]),
    tool_result("You fell.", id="call_b2", name="act"),
)


def check_conversation(visited: Visit, model: Native, *results: Message) -> None:
    """Check that the second prompt and the record hold the parts sent and received."""
    replies = WHOLE.message
    wanted = [system("Be."), user("go"), replies, *results]
    assert list(model.last.messages) == wanted
    assert model.last.tools == (ACT, REST)
    first, second = visited.session.graph.calls
    assert (first.reply, first.tools) == (replies, (ACT, REST))
    assert first.messages == (system("Be."), user("go"))
    assert (second.parent, second.messages) == (0, results)


def test_a_chat_goes_on_with_the_same_parts() -> None:
    model = Native(WHOLE, replied("done"))

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).chat.completions.create
        talk: list[Any] = [
            {"role": "system", "content": "Be."},
            {"role": "user", "content": "go"},
        ]
        tools = of_functions(ACT, REST)
        first = (await ask(model="m", messages=talk, tools=tools)).choices[0].message
        shown = [{"type": "image_url", "image_url": {"url": one.url}} for one in (PNG, JPEG)]
        rose = [{"type": "text", "text": "You rose."}, *shown]
        results = [  # in another order than the calls
            {"role": "tool", "tool_call_id": "call_b2", "content": "You fell."},
            {"role": "tool", "tool_call_id": "call_a1", "content": rose},
        ]
        await ask(model="m", messages=[*talk, first, *results], tools=tools)
        check_conversation(visited, model, *RESULTS)

    through(model, run)


@pytest.mark.parametrize("by", ["items", "id"])
def test_responses_go_on_with_the_same_parts(by: str) -> None:
    model = Native(WHOLE, replied("done"))

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).responses.create
        asked: Any = {"model": "m", "instructions": "Be.", "tools": of_items(ACT, REST)}
        first = await ask(input="go", **asked)
        rose = [{"type": "input_text", "text": "You rose."}]
        rose += [{"type": "input_image", "image_url": one.url} for one in (PNG, JPEG)]
        results = [
            {"type": "function_call_output", "call_id": "call_a1", "output": rose},
            {"type": "function_call_output", "call_id": "call_b2", "output": "You fell."},
        ]
        if by == "id":
            await ask(input=results, previous_response_id=first.id, **asked)
        else:
            await ask(input=[{"role": "user", "content": "go"}, *first.output, *results], **asked)
        check_conversation(visited, model, *RESULTS)

    through(model, run)


def test_messages_go_on_with_the_same_parts_and_say_which_results_are_errors() -> None:
    model = Native(WHOLE, replied("done"))

    async def run(visited: Visit) -> None:
        ask: Any = messages_sdk(visited).messages.create
        asked: Any = {"model": "m", "max_tokens": 99, "system": "Be."}
        asked["tools"] = of_inputs(ACT, REST)
        talk: list[Any] = [{"role": "user", "content": "go"}]
        first = await ask(messages=talk, **asked)
        sources = [
            {"type": "base64", "media_type": one.media_type, "data": one.base64}
            for one in (PNG, JPEG)
        ]
        shown = [{"type": "image", "source": source} for source in sources]
        rose = [{"type": "text", "text": "You rose."}, *shown]
        results = [
            {"type": "tool_result", "tool_use_id": "call_a1", "content": rose},
            {
                "type": "tool_result",
                "tool_use_id": "call_b2",
                "content": "You fell.",
                "is_error": True,
            },
        ]
        replies = {"role": "assistant", "content": first.content}
        await ask(messages=[*talk, replies, {"role": "user", "content": results}], **asked)
        failed = tool_result("You fell.", id="call_b2", name="act", error=True)
        check_conversation(visited, model, RESULTS[0], failed)

    through(model, run)


def test_replies_of_another_model_pass_part_for_part() -> None:
    """A history that did not begin here."""
    model = Native(*[replied("done")] * 3)
    call = ToolCall("act", {"action": "up"}, "theirs")
    wanted = [
        user("go"),
        assistant("Going.", reasoning="Up.", signature="s", tool_calls=[call]),
        tool_result("ok", id="theirs", name="act"),
    ]

    async def run(visited: Visit) -> None:
        start: Any = {"role": "user", "content": "go"}
        function = {"name": "act", "arguments": '{"action": "up"}'}
        replies: Any = {
            "role": "assistant",
            "content": "Going.",
            "reasoning_content": "Up.",
            "tool_calls": [{"id": "theirs", "type": "function", "function": function}],
        }
        result: Any = {"role": "tool", "tool_call_id": "theirs", "content": "ok"}
        sdk: Any = chat_sdk(visited)
        await sdk.chat.completions.create(
            model="m", messages=[start, replies, result], tools=of_functions(ACT)
        )
        unsigned = replace(wanted[1], parts=(Reasoning("Up."), *wanted[1].parts[1:]))
        assert list(model.last.messages) == [wanted[0], unsigned, wanted[2]]
        items = [
            start,
            {
                "type": "reasoning",
                "id": "rs_x",
                "summary": [{"type": "summary_text", "text": "Up."}],
                "encrypted_content": "s",
            },
            {"role": "assistant", "content": "Going."},
            {"type": "function_call", "call_id": "theirs", **function},
            {"type": "function_call_output", "call_id": "theirs", "output": "ok"},
        ]
        await sdk.responses.create(model="m", input=items, tools=of_items(ACT))
        assert list(model.last.messages) == wanted
        blocks: list[Any] = [
            {"type": "thinking", "thinking": "Up.", "signature": "s"},
            {"type": "text", "text": "Going."},
            {"type": "tool_use", "id": "theirs", "name": "act", "input": {"action": "up"}},
        ]
        answered = {"type": "tool_result", "tool_use_id": "theirs", "content": "ok"}
        await messages_sdk(visited).messages.create(
            model="m",
            max_tokens=9,
            messages=[
                start,
                {"role": "assistant", "content": blocks},
                {"role": "user", "content": [answered]},
            ],
            tools=of_inputs(ACT),
        )
        assert list(model.last.messages) == wanted

    through(model, run)


def test_arguments_that_are_no_json_object_stay_as_they_were() -> None:
    model = Native(replied("", ToolCall("act", {"": '{"action": up'}, "c")), replied("done"))

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).chat.completions.create
        talk: list[Any] = [{"role": "user", "content": "go"}]
        tools = of_functions(ACT)
        first = (await ask(model="m", messages=talk, tools=tools)).choices[0].message
        assert first.tool_calls[0].function.arguments == '{"action": up'
        result = {"role": "tool", "tool_call_id": "c", "content": "What?"}
        more = await ask(model="m", messages=[*talk, first, result], tools=tools)
        assert more.model_extra["palaestra"]["parent"] == 0

    through(model, run)


def test_images_come_in_any_number_and_at_any_position() -> None:
    model = Native(*[replied("seen")] * 3)
    wanted = Message("user", (PNG, Text("before"), JPEG, PNG, Text("after")))

    async def run(visited: Visit) -> None:
        sdk: Any = chat_sdk(visited)
        parts: list[Any] = [
            {"type": "image_url", "image_url": {"url": part.url}}
            if isinstance(part, Image)
            else {"type": "text", "text": part.text}
            for part in wanted.parts
        ]
        asked = [{"role": "user", "content": parts}]
        await sdk.chat.completions.create(model="m", messages=asked)
        assert list(model.last.messages) == [wanted]
        parts = [
            {"type": "input_image", "image_url": part.url}
            if isinstance(part, Image)
            else {"type": "input_text", "text": part.text}
            for part in wanted.parts
        ]
        await sdk.responses.create(model="m", input=[{"role": "user", "content": parts}])
        assert list(model.last.messages) == [wanted]
        parts = [
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": part.media_type,
                    "data": base64.b64encode(part.data).decode(),
                },
            }
            if isinstance(part, Image)
            else {"type": "text", "text": part.text}
            for part in wanted.parts
        ]
        await messages_sdk(visited).messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": parts}]
        )
        assert list(model.last.messages) == [wanted]
        assert visited.session.graph.calls[-1].messages[0].images == (PNG, JPEG, PNG)

    through(model, run)


# ── which reply is meant ─────────────────────────────────────────────────────


def test_equal_replies_are_distinguished_by_id() -> None:
    """Their reasoning, which a program need not send back, differs."""
    thoughts = ["One.", "Two.", "Three."]
    calls = [ToolCall("rest", {}, f"id_{n}") for n in range(3)]
    given = [replied("", call, reasoning=t) for call, t in zip(calls, thoughts, strict=True)]
    model = Native(*given, *[replied("done")] * 3)

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).chat.completions.create
        start = {"role": "user", "content": "go"}
        tools = of_functions(REST)
        asked = await ask(model="m", messages=[start], tools=tools, n=3)
        received = [choice.message for choice in asked.choices]
        for number in (1, 0, 2):
            bare = {  # as frameworks send it: neither words nor reasoning, its JSON respelt
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": received[number].tool_calls[0].id,
                        "type": "function",
                        "function": {"name": "rest", "arguments": " { } "},
                    }
                ],
            }
            result = {"role": "tool", "tool_call_id": f"id_{number}", "content": "ok"}
            more = await ask(model="m", messages=[start, bare, result], tools=tools)
            assert model.last.messages[1].reasoning == thoughts[number]
            assert more.model_extra["palaestra"]["parent"] == number

    through(model, run)


def test_a_reply_without_calls_is_known_by_its_item_and_by_its_signature() -> None:
    given = [replied("Well.", reasoning=t, signature=t) for t in ("One.", "Two.")]
    model = Native(*given, *[replied("done")] * 4)

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).responses.create
        start: Any = {"role": "user", "content": "go"}
        received = [await ask(model="m", input=[start]) for _ in given]
        for number in (1, 0):
            spoken = [item for item in received[number].output if item.type == "message"]
            await ask(model="m", input=[start, *spoken, start])
            assert model.last.messages[1].reasoning == given[number].reasoning
        for number in (1, 0):
            thought = given[number].reasoning
            blocks: list[Any] = [
                {"type": "thinking", "thinking": thought, "signature": thought},
                {"type": "text", "text": "Well."},
            ]
            talk: list[Any] = [start, {"role": "assistant", "content": blocks}, start]
            await messages_sdk(visited).messages.create(model="m", max_tokens=9, messages=talk)
        assert [call.parent for call in visited.session.graph.calls[2:]] == [1, 0, 1, 0]

    through(model, run)


def test_a_reply_that_was_edited_is_no_longer_the_one_of_its_ids() -> None:
    model = Native(WHOLE, *[replied("done")] * 3)

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).chat.completions.create
        start = {"role": "user", "content": "go"}
        tools = of_functions(ACT, REST)
        first = (await ask(model="m", messages=[start], tools=tools)).choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in BOTH]
        reply = first.model_dump(exclude_none=True)
        words = {**reply, "content": "Neither."}
        other = json.loads(json.dumps(reply))
        other["tool_calls"][0]["function"]["arguments"] = '{"action": "fall"}'
        fewer = {**reply, "tool_calls": reply["tool_calls"][:1]}
        for edited, answers in ((words, results), (other, results), (fewer, results[:1])):
            more = await ask(model="m", messages=[start, edited, *answers], tools=tools)
            assert more.model_extra["palaestra"]["branch"] == "begins"
        (output,) = [m for m in model.prompts[1].messages if m.role == "assistant"]
        assert (output.text, output.tool_calls) == ("Neither.", BOTH)

    through(model, run)


def test_other_tools_begin_a_branch() -> None:
    model = Native(replied("a"), replied("b"))

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).chat.completions.create
        start = {"role": "user", "content": "go"}
        await ask(model="m", messages=[start], tools=of_functions(ACT))
        talk = [start, {"role": "assistant", "content": "a"}, start]
        await ask(model="m", messages=talk, tools=of_functions(ACT, REST))
        assert [call.parent for call in visited.session.graph.calls] == [None, None]

    through(model, run)


# ── how the model is asked ───────────────────────────────────────────────────


def test_a_server_takes_tool_and_reasoning_options() -> None:
    model = Native(*[replied("ok")] * 4)

    async def run(visited: Visit) -> None:
        sdk: Any = chat_sdk(visited)
        talk: Any = [{"role": "user", "content": "go"}]
        chat = await sdk.chat.completions.create(
            model="m",
            messages=talk,
            tools=of_functions(ACT),
            tool_choice={"type": "function", "function": {"name": "act"}},
            parallel_tool_calls=False,
            reasoning_effort="low",
        )
        asked = model.last.sampling
        chosen = (asked.tool_choice, asked.parallel_tool_calls, asked.reasoning_effort)
        assert chosen == ("act", False, "low")
        response = await sdk.responses.create(
            model="m",
            input="go",
            tools=of_items(ACT),
            tool_choice="required",
            parallel_tool_calls=True,
            reasoning={"effort": "high"},
            include=["reasoning.encrypted_content"],
        )
        asked = model.last.sampling
        chosen = (asked.tool_choice, asked.parallel_tool_calls, asked.reasoning_effort)
        assert chosen == ("required", True, "high")
        ask: Any = messages_sdk(visited).messages.create
        message = await ask(
            model="m",
            max_tokens=99,
            messages=talk,
            tools=of_inputs(ACT),
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            output_config={"effort": "medium"},
        )
        asked = model.last.sampling
        chosen = (asked.tool_choice, asked.parallel_tool_calls, asked.reasoning_effort)
        assert chosen == ("required", False, "medium")
        for answer in (chat, response, message):
            assert answer.model_extra["palaestra"]["ignored"] == []
        thinking = {"type": "enabled", "budget_tokens": 2000}
        budget = await ask(model="m", max_tokens=99, messages=talk, thinking=thinking)
        assert model.last.sampling.reasoning_effort == "low"
        assert budget.model_extra["palaestra"]["ignored"] == ["thinking.budget_tokens"]

    through(model, run)


def test_a_model_without_native_tools_gets_them_as_text() -> None:
    class Speaking(Native):
        native_tools = False

    model = Speaking(replied('<tool_call>{"name": "act", "arguments": {"action": "up"}}'))

    async def run(visited: Visit) -> None:
        ask: Any = chat_sdk(visited).chat.completions.create
        start = [{"role": "user", "content": "go"}]
        reply = await ask(
            model="m", messages=start, tools=of_functions(ACT), reasoning_effort="low"
        )
        assert model.last.tools == ()
        assert '"name": "act"' in model.last.messages[0].text
        assert reply.choices[0].message.tool_calls[0].function.name == "act"
        assert reply.model_extra["palaestra"]["ignored"] == ["reasoning_effort"]

    through(model, run)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_errors_are_those_of_the_sdks(stream: bool) -> None:
    refused = RequestRefused("refused", "the server answered 400: no such tool")
    errors = [refused, ContextTooLong("the prompt is too long"), refused]
    model = Native(*errors, InfrastructureFault("model", "it broke"))

    async def run(visited: Visit) -> None:
        sdk: Any = chat_sdk(visited)
        talk: Any = [{"role": "user", "content": "go"}]
        with pytest.raises(openai.BadRequestError, match="no such tool"):
            await sdk.chat.completions.create(model="m", messages=talk, stream=stream)
        with pytest.raises(openai.BadRequestError) as long:
            await sdk.responses.create(model="m", input="go", stream=stream)
        assert long.value.code == "context_length_exceeded"
        with pytest.raises(anthropic.BadRequestError, match="no such tool"):
            await messages_sdk(visited).messages.create(
                model="m", max_tokens=9, messages=talk, stream=stream
            )
        with pytest.raises(openai.APIStatusError, match="ended") as over:
            await sdk.chat.completions.create(model="m", messages=talk, stream=stream)
        assert over.value.status_code == 410

    through(model, run)
