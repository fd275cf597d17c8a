"""Every unsupported field that a program sets is reported to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.gateway import anthropic_messages, openai_chat, openai_responses
from palaestra.gateway.request_fields import Shape
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.gateway.test_refusals import START, scripted
from tests.gateway.visits import visit

SCHEMA = {"type": "object", "properties": {}}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "act", "parameters": SCHEMA}}
FLAT_TOOL = {"type": "function", "name": "act", "parameters": SCHEMA}
BLOCK_TOOL = {"name": "act", "input_schema": SCHEMA}

CHAT = {"model": "m", "messages": START}
RESPONSES = {"model": "m", "input": "start"}
MESSAGES = {"model": "m", "max_tokens": 5, "messages": START}
PATHS = {
    "chat": ("/v1/chat/completions", CHAT),
    "responses": ("/v1/responses", RESPONSES),
    "messages": ("/anthropic/v1/messages", MESSAGES),
}

THOUGHT = {"type": "summary_text", "text": "So."}
THINKING = {"type": "thinking", "thinking": "So.", "signature": "s"}
REDACTED = {"type": "redacted_thinking", "data": "x"}
FAILED = [
    *START,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "act", "input": {}}]},
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "No.", "is_error": True}
        ],
    },
]
REPLIED = [*START, {"role": "assistant", "content": "up"}]
NAMED: Any = [  # what is set beside the usual, and what is named of it
    ("chat", {"seed": 0}, ["seed"]),
    ("chat", {"top_p": 0.9, "frequency_penalty": 0.5}, ["top_p", "frequency_penalty"]),
    ("chat", {"presence_penalty": -1, "logit_bias": {"3": 1}}, ["presence_penalty", "logit_bias"]),
    ("chat", {"parallel_tool_calls": False, "top_k": 5}, ["top_k", "parallel_tool_calls"]),
    ("chat", {"max_tokens": 10**6}, ["max_tokens"]),
    ("chat", {"max_completion_tokens": 10**6}, ["max_completion_tokens"]),
    ("chat", {"temperature": 0.25}, ["temperature"]),
    ("chat", {"store": True, "user": "u"}, ["store", "user"]),
    ("chat", {"reasoning_effort": "low", "verbosity": "low"}, ["verbosity", "reasoning_effort"]),
    ("chat", {"prediction": {"type": "content", "content": "x"}}, ["prediction"]),
    ("chat", {"web_search_options": {"user_location": None}}, ["web_search_options"]),
    ("chat", {"continue_final_message": True}, ["continue_final_message"]),
    ("chat", {"tools": [CHAT_TOOL], "tool_choice": "required"}, ["tool_choice"]),
    ("chat", {"stream_options": {"speed": 2}}, ["stream_options.speed"]),
    ("chat", {"messages": [{**START[0], "name": "ann"}]}, ["messages.name"]),
    (
        "chat",
        {"tools": [{"type": "function", "function": {**CHAT_TOOL["function"], "strict": True}}]},
        ["tools.function.strict"],
    ),
    ("responses", {"top_p": 0.5, "max_output_tokens": 10**6}, ["top_p", "max_output_tokens"]),
    ("responses", {"reasoning": {"effort": "low"}, "store": False}, ["store", "reasoning"]),
    ("responses", {"reasoning": {"summary": "auto"}}, ["reasoning.summary"]),
    ("responses", {"parallel_tool_calls": False}, ["parallel_tool_calls"]),
    ("responses", {"truncation": "auto", "metadata": {"a": "b"}}, ["truncation", "metadata"]),
    ("responses", {"max_tool_calls": 1}, ["max_tool_calls"]),
    ("responses", {"text": {"verbosity": "low"}}, ["text.verbosity"]),
    ("responses", {"include": ["file_search_call.results"]}, ["include"]),
    ("responses", {"tools": [{**FLAT_TOOL, "strict": True}]}, ["tools.strict"]),
    (
        "responses",
        {"input": [{"type": "reasoning", "summary": [THOUGHT]}, *START]},
        ["input.reasoning"],
    ),
    ("messages", {"top_k": 5, "thinking": {"type": "enabled"}}, ["top_k", "thinking"]),
    (
        "messages",
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        ["thinking.budget_tokens", "thinking"],
    ),
    ("messages", {"output_config": {"effort": "low"}}, ["output_config.effort"]),
    ("messages", {"max_tokens": 10**6}, ["max_tokens"]),
    ("messages", {"messages": REPLIED}, ["prefill"]),
    ("messages", {"metadata": {"user_id": "u"}}, ["metadata"]),
    (
        "messages",
        {"tools": [{**BLOCK_TOOL, "cache_control": {"type": "ephemeral"}}]},
        ["tools.cache_control"],
    ),
    (
        "messages",
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "tools": [BLOCK_TOOL]},
        ["tool_choice.disable_parallel_tool_use", "tool_choice"],
    ),
    (
        "messages",
        {"messages": [{"role": "assistant", "content": [THINKING]}, *START]},
        ["messages.thinking"],
    ),
    (
        "messages",
        {"messages": [{"role": "assistant", "content": [REDACTED]}, *START]},
        ["messages.thinking"],
    ),
    ("messages", {"messages": FAILED}, ["messages.content.is_error"]),
    (
        "chat",
        {"messages": [{"role": "assistant", "reasoning_content": "So."}, *START]},
        ["messages.reasoning_content"],
    ),
]


@pytest.mark.parametrize(("protocol", "more", "named"), NAMED, ids=[str(n[2]) for n in NAMED])
def test_set_but_unsupported_fields_are_reported(protocol: str, more: Any, named: Any) -> None:
    async def run() -> None:
        path, body = PATHS[protocol]
        async with visit(scripted()) as visited:
            answer = (await visited.post(path, {**body, **more})).raise_for_status().json()
            assert answer["palaestra"]["ignored"] == named

    asyncio.run(run())


NEUTRAL: Any = [
    ("chat", {"top_p": 1, "frequency_penalty": 0.0, "logit_bias": {}, "seed": None}),
    ("chat", {"parallel_tool_calls": True, "store": False, "n": 1, "stop": None, "tools": None}),
    ("chat", {"modalities": ["text"], "service_tier": "auto", "metadata": {}}),
    ("chat", {"temperature": 1.0, "max_tokens": 3, "logprobs": True, "stop": ["x"]}),
    ("chat", {"tools": [CHAT_TOOL], "tool_choice": "auto", "functions": [], "audio": None}),
    ("responses", {"parallel_tool_calls": True, "store": True, "truncation": "disabled"}),
    ("responses", {"include": ["message.output_text.logprobs"], "conversation": None}),
    ("responses", {"include": ["reasoning.encrypted_content"]}),
    ("responses", {"input": [{"type": "reasoning", "summary": []}, *START]}),
    ("messages", {"thinking": {"type": "disabled"}, "stop_sequences": ["x"], "top_k": None}),
]


@pytest.mark.parametrize(("protocol", "more"), NEUTRAL)
def test_fields_without_effect_are_not_reported(protocol: str, more: Any) -> None:
    async def run() -> None:
        path, body = PATHS[protocol]
        async with visit(scripted()) as visited:
            answer = (await visited.post(path, {**body, **more})).raise_for_status().json()
            assert answer["palaestra"]["ignored"] == []

    asyncio.run(run())


LOST: Any = [
    ("chat", {"functions": [{"name": "act", "parameters": SCHEMA}]}, "functions"),
    (
        "chat",
        {"messages": [*START, {"role": "assistant", "function_call": {"name": "act"}}]},
        "function_call",
    ),
    ("chat", {"messages": [{"role": "assistant", "audio": {"id": "a"}}, *START]}, "audio"),
    ("responses", {"conversation": "conv_1"}, "conversation"),
    ("responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
    ("messages", {"mcp_servers": [{"type": "url", "url": "http://x"}]}, "mcp_servers"),
]


@pytest.mark.parametrize(("protocol", "more", "field"), LOST)
def test_fields_that_carry_history_or_tools_are_refused(
    protocol: str, more: Any, field: str
) -> None:
    async def run() -> None:
        path, body = PATHS[protocol]
        async with visit(scripted()) as visited:
            answer = await visited.post(path, {**body, **more})
            assert answer.status_code == 400 and field in answer.text
            assert not visited.session.graph.calls

    asyncio.run(run())


SHAPES: Any = [
    (openai_chat.ChatRequest, openai_chat.question, CHAT),
    (anthropic_messages.MessagesRequest, anthropic_messages.question, MESSAGES),
    (
        openai_responses.ResponseRequest,
        lambda asked: openai_responses.question(asked, openai_responses.IssuedResponses()),
        RESPONSES,
    ),
]
names = st.text("abcdefghij_", min_size=3).filter(lambda name: not name.startswith("_"))
values = st.one_of(
    st.integers(), st.text(min_size=1), st.just(True), st.lists(st.integers(), min_size=1)
)


@settings(max_examples=60)
@given(st.sampled_from(SHAPES), st.dictionaries(names, values, max_size=4))
def test_any_unknown_field_that_is_set_is_reported(case: Any, more: dict[str, Any]) -> None:
    shape, question, body = case
    own = {name for name in more if name in shape.model_fields}
    asked = shape.model_validate({**body, **{k: v for k, v in more.items() if k not in own}})
    assert isinstance(asked, Shape)
    assert set(question(asked).ignored) == more.keys() - own


def test_unavailable_log_probabilities_are_reported() -> None:
    async def run() -> None:
        async with visit(ScriptedModel(["up"])) as visited:  # shows no tokens
            answer = (await visited.chat(START, logprobs=True)).json()
            assert answer["palaestra"]["ignored"] == ["logprobs"]

    asyncio.run(run())
