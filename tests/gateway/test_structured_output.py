"""Structured output: enforced on a resident model, requested in the prompt of any other."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import openai
import pydantic
import pytest

from palaestra.core.model import CONSTRAINED
from palaestra.core.session import Session
from palaestra.gateway.structured_output import LONGEST, Form
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import KEY, TASK, Acting, Stairs, renderer
from tests.gateway.test_closing import Patient
from tests.gateway.test_refusals import START, scripted
from tests.gateway.test_streams import essence, events, words_of
from tests.gateway.visits import SAMPLING, Visit, visit

SCHEMA = {
    "type": "object",
    "properties": {"where": {"enum": ["up", "fall"]}, "sure": {"type": "boolean"}},
    "required": ["where", "sure"],
    "additionalProperties": False,
}
NETWORK = tiny_network(320, layers=1, width=32, heads=2, context=512, seed=3)
CHAT: Any = {"model": "m", "messages": START}
RESPONSES: Any = {"model": "m", "input": "start"}
MESSAGES: Any = {"model": "m", "max_tokens": 200, "messages": START}
TOOL = {"type": "function", "function": {"name": "act", "parameters": {"type": "object"}}}

Case = tuple[str, dict[str, Any], str]


def asking(schema: Any) -> list[Case]:
    """Each field that can request a schema: its path, form and name."""
    named = {"name": "move", "schema": schema}
    flat = {"type": "json_schema", "schema": schema}
    nested = {"type": "json_schema", "json_schema": {**named, "strict": True}}
    return [
        ("/v1/chat/completions", {**CHAT, "response_format": nested}, "response_format"),
        ("/v1/responses", {**RESPONSES, "text": {"format": {**flat, **named}}}, "text.format"),
        ("/anthropic/v1/messages", {**MESSAGES, "output_format": flat}, "output_format"),
        (
            "/anthropic/v1/messages",
            {**MESSAGES, "output_config": {"format": flat}},
            "output_config.format",
        ),
    ]


def resident() -> ResidentModel:
    return ResidentModel("policy", NETWORK, renderer(), context=512)


def words(path: str, answer: Any) -> str:
    if path.endswith("completions"):
        return str(answer["choices"][0]["message"]["content"])
    if path.endswith("responses"):
        return str(answer["output"][0]["content"][0]["text"])
    return str(answer["content"][0]["text"])


needs_masks = pytest.mark.skipif(
    not resident().constrains, reason="pip install 'palaestra[serving]'"
)


@needs_masks
@pytest.mark.parametrize(("path", "body", "field"), asking(SCHEMA), ids=[c[2] for c in asking({})])
def test_a_resident_model_replies_in_the_form_and_the_record_is_the_one_of_this_process(
    path: str, body: Any, field: str
) -> None:
    async def run() -> None:
        async with visit(resident()) as visited:
            answer = (await visited.post(path, body)).raise_for_status().json()
            jsonschema.validate(json.loads(words(path, answer)), SCHEMA)
            assert answer["palaestra"]["ignored"] == []
            (call,) = visited.session.graph.calls
            assert call.policy == f"policy{CONSTRAINED}"
            wanted = essence(visited)
        async with visit(resident()) as visited:
            shown = await events(visited, path, body)
            assert "".join(words_of(path, shown)) == words(path, answer)
            assert essence(visited) == wanted
        session = Session(KEY, TASK, Stairs(), Acting(), {"agent": resident()}, sampling=SAMPLING)
        held = replace(SAMPLING, grammar=Form(field, SCHEMA).grammar(()))
        await session.generate(list(call.messages), sampling=held)
        (ours,) = session.graph.calls
        assert (ours.prompt, ours.completion, ours.logprobs, ours.policy) == (
            call.prompt,
            call.completion,
            call.logprobs,
            call.policy,
        )

    asyncio.run(run())


@pytest.mark.parametrize(("path", "body", "field"), asking(SCHEMA), ids=[c[2] for c in asking({})])
def test_any_other_model_is_asked_for_the_form_and_the_field_is_reported(
    path: str, body: Any, field: str
) -> None:
    async def run() -> None:
        async with visit(scripted("up")) as visited:
            answer = (await visited.post(path, body)).raise_for_status().json()
            assert answer["palaestra"]["ignored"] == [field]
            shown, asked = visited.session.graph.calls[0].messages
            assert shown.role == "system" and json.dumps(SCHEMA) in shown.text
            assert asked.text == "start"

    asyncio.run(run())


@needs_masks
def test_with_tools_a_reply_is_such_json_or_calls_of_them() -> None:
    flat = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    kinds = set()

    async def run() -> None:
        async with visit(resident()) as visited:
            for number in range(12):
                start = [{"role": "user", "content": f"start {number}"}]
                asked = {"tools": [TOOL], "response_format": flat}
                answer = (await visited.chat(start, **asked)).raise_for_status().json()
                (choice,) = answer["choices"]
                kinds.add(choice["finish_reason"])
                if choice["finish_reason"] == "stop":
                    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
                for call in choice["message"].get("tool_calls") or ():
                    assert call["function"]["name"] == "act"
                if choice["finish_reason"] == "length":  # a random model's arguments have no end
                    begun = visited.session.graph.calls[number].reply.text
                    assert re.match(r'<tool_call>\n\{\s*"name"\s*:\s*"act"', begun)

    asyncio.run(run())
    assert "stop" in kinds and len(kinds) > 1


@needs_masks
def test_json_without_a_schema_is_an_object_and_a_text_is_a_text() -> None:
    async def run() -> None:
        async with visit(resident()) as visited:
            body = {"response_format": {"type": "json_object"}, "max_tokens": 30}
            answer = (await visited.chat(START, **body)).raise_for_status().json()
            assert answer["choices"][0]["message"]["content"].startswith("{")
            plain = (await visited.chat(START, response_format={"type": "text"})).json()
            assert plain["palaestra"]["ignored"] == []
            assert visited.session.graph.calls[1].policy == "policy"

    asyncio.run(run())


def test_unknown_forms_are_refused() -> None:
    def schema(schema: Any) -> Any:
        return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}

    wrong: list[Any] = [{"type": "grammar"}, {"type": "json_schema", "json_schema": 3}]
    wrong += [schema([1]), schema({"enum": ["a" * LONGEST]})]
    held: list[Any] = [schema({"type": "objekt"}), schema({"$ref": "https://example.com/a"})]

    async def refused(visited: Visit, form: Any) -> None:
        answer = await visited.chat(START, response_format=form)
        assert answer.status_code == 400, form
        assert not visited.session.graph.calls and not visited.endpoint.ended.is_set()

    async def run() -> None:
        model = resident()
        async with visit(model) as visited:
            for form in [*wrong, *(held if model.constrains else ())]:
                await refused(visited, form)

    asyncio.run(run())


@needs_masks
def test_openais_sdk_parses_into_the_class_that_it_was_given() -> None:
    class Move(pydantic.BaseModel):
        sure: bool
        steps: list[bool]

    async def run() -> None:
        async with visit(resident()) as visited:
            sdk = openai.AsyncOpenAI(
                base_url=f"{visited.address}/v1", api_key=visited.endpoint.token, max_retries=0
            )
            chat = await sdk.chat.completions.parse(model="m", messages=START, response_format=Move)
            assert isinstance(chat.choices[0].message.parsed, Move)
            answer = await sdk.responses.parse(model="m", input="start", text_format=Move)
            assert isinstance(answer.output_parsed, Move)

    asyncio.run(run())


def test_the_closing_reply_is_json_where_json_was_asked_for() -> None:
    async def run() -> None:
        agent = Patient()
        async with visit(ScriptedModel(["up"]), world=Stairs(1), agent=agent) as visited:
            await visited.post("/world/step", {"action": "up"})
            form = {"type": "json_object"}
            answer = (await visited.chat(START, response_format=form)).json()
            assert json.loads(answer["choices"][0]["message"]["content"]) == {}
            agent.leave.set()

    asyncio.run(run())
