"""Required tool calls: one well-formed call in the model's own notation, sampled under a mask."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import jsonschema
import pytest
import torch

pytest.importorskip("llguidance", reason="pip install 'palaestra[serving]'")

from palaestra.core.errors import InputError, TemplateBreaksPrefix
from palaestra.core.message import assistant, system, tool_result, user
from palaestra.core.model import CONSTRAINED, Finish, Generation, Prompt, Renderer, Sampling
from palaestra.core.tool import Tool
from palaestra.models.local.grammar import Grammars
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from tests.chosen import mostly_slow
from tests.core import small
from tests.models.plain import distributions
from tests.models.renderers.templating import renderer
from tests.models.test_local_tools import plain

NOTATIONS = (
    *("qwen2_5", "qwen3", "smollm3", "llama3", "mistral", "deepseek", "gpt_oss", "chatml"),
    *("qwen_xml", "glm", "minimax"),  # with tags
)
FEW = mostly_slow(NOTATIONS, "chatml", "qwen3", "glm")
MOVE = Tool(
    "move",
    "Move.",
    {
        "type": "object",
        "properties": {
            "where": {"enum": ["north", "sud ñ", 'a "b"']},
            "steps": {"type": "integer", "minimum": 1, "maximum": 3},
        },
        "required": ["where"],
    },
)
WAIT = Tool("wait", "Wait.", {"type": "object", "properties": {"hasty": {"type": "boolean"}}})
TOOLS = (MOVE, WAIT)
SCHEMAS = {tool.name: {**tool.parameters, "additionalProperties": False} for tool in TOOLS}
TALK = (system("Act."), user("?"))


def render_of(name: str) -> Renderer:
    return plain() if name == "chatml" else renderer(name)


@cache
def model_of(name: str) -> ResidentModel:
    """A network with random weights behind that renderer."""
    render = render_of(name)
    vocabulary = render.vocabulary()
    assert vocabulary is not None
    tokens = json.loads(vocabulary)
    size = len(tokens["model"]["vocab"]) + len(tokens["added_tokens"])
    network = tiny_network(size, layers=1, width=8, heads=2, context=1024, seed=3)
    return ResidentModel("policy", network, render, context=1024, slots=8)


def asked(
    model: ResidentModel, *seeds: int, tools: Sequence[Tool] = TOOLS, **more: Any
) -> list[Generation]:
    sampling = Sampling(**{"max_tokens": 200, "tool_choice": "required", **more})
    tokens = tuple(model.renderer.start(TALK, tools))

    async def together() -> list[Generation]:
        prompts = [Prompt(TALK, tokens, sampling, seed, tools=tuple(tools)) for seed in seeds]
        return await asyncio.gather(*(model.generate(prompt) for prompt in prompts))

    return asyncio.run(together())


@pytest.mark.parametrize("name", FEW)
def test_a_required_call_is_one_call_with_arguments_of_its_schema(name: str) -> None:
    model = model_of(name)
    replies = asked(model, *range(6))
    for reply in replies:
        (call,) = reply.tool_calls
        jsonschema.validate(dict(call.arguments), SCHEMAS[call.name])
        assert not reply.text and not reply.reasoning
        assert reply.finish is Finish.STOP and reply.tokens[-1] in model.renderer.end_tokens
        assert reply.policy == f"policy{CONSTRAINED}"
    assert {reply.tool_calls[0].name for reply in replies} == {"move", "wait"}
    assert len({reply.tool_calls[0].id for reply in replies}) == len(replies)


@pytest.mark.parametrize("name", FEW)
def test_the_model_reads_its_call_back_as_its_template_writes_it(name: str) -> None:
    """The sampled text is the template's own, so a conversation continues on its branch."""
    model = model_of(name)
    (reply,) = asked(model, 3, tool_choice="move")
    (call,) = reply.tool_calls
    rendered = model.renderer.reply(assistant("", tool_calls=[call]))
    assert model.renderer.text(reply.tokens) == model.renderer.text(rendered)
    answered = [reply.message, tool_result("Done.", id=call.id, name=call.name)]
    # MiniMax's leaves out a thought that is empty, which begins a new branch
    new = pytest.raises(TemplateBreaksPrefix) if name == "minimax" else nullcontext()
    with new:
        model.renderer.extend([*TALK, answered[0]], answered[1:], True, TOOLS)


def test_a_named_tool_is_the_one_that_is_called() -> None:
    for tool in TOOLS:
        found = asked(model_of("qwen2_5"), *range(4), tool_choice=tool.name)
        assert {reply.tool_calls[0].name for reply in found} == {tool.name}


def test_logprobs_are_those_under_the_mask() -> None:
    """Recomputed from the whole distribution and the tokens that the grammar allows."""
    render = small.renderer()
    network = tiny_network(320, layers=1, width=32, heads=2, context=1024, seed=3)
    model = ResidentModel("policy", network, render, context=1024)
    prompt = tuple(render.start(TALK, TOOLS))
    sampling = Sampling(0.7, 300, tool_choice="required")
    reply = asyncio.run(model.generate(Prompt(TALK, prompt, sampling, 5, tools=TOOLS)))
    assert len(reply.tool_calls) == 1
    vocabulary = render.vocabulary()
    grammar = model._call_grammars.of(TOOLS, "required", reply.tool_calls[0].id)
    mask = Grammars(vocabulary, network.config.vocab_size, render.end_tokens).of(grammar)
    rows = distributions(network, list(prompt), list(reply.tokens), temperature=0.7)
    for place, (row, token) in enumerate(zip(rows, reply.tokens, strict=True)):
        allowed = mask.allowed(reply.tokens[:place])
        assert token in allowed
        wanted = float(row[token] - torch.logsumexp(row[allowed], 0))
        assert reply.logprobs[place] == pytest.approx(wanted, abs=1e-4)
    assert any(logprob < -0.1 for logprob in reply.logprobs)


def test_a_limit_of_tokens_cuts_a_required_call() -> None:
    (reply,) = asked(model_of("llama3"), 0, max_tokens=4)
    assert reply.finish is Finish.LENGTH and not reply.tool_calls


def test_one_call_is_required_without_parallel_calls_as_well() -> None:
    (reply,) = asked(model_of("llama3"), 0, parallel_tool_calls=False)
    assert len(reply.tool_calls) == 1


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("gemma4", {}, "its arguments are"),
        ("gemma3", {}, "its arguments are"),
        ("llama_python", {}, "its arguments are"),
        ("qwen2_5", {"tool_choice": "fly"}, r"fits no tool of the prompt \(tools: move, wait\)"),
        ("qwen2_5", {"tools": ()}, r"fits no tool of the prompt \(tools: none\)"),
        ("qwen2_5", {"grammar": 'start: "a"'}, "excludes `choices` and `grammar`"),
        ("qwen2_5", {"choices": ("a",)}, "excludes `choices` and `grammar`"),
        ("qwen2_5", {"reasoning_effort": "low"}, "reasoning_effort='low' is not supported"),
        (
            "qwen2_5",
            {"tools": [Tool("odd", "Odd.", {"type": "object", "properties": {"a": {"not": {}}}})]},
            "grammar of the reply is invalid",
        ),
    ],
)
def test_what_cannot_be_required_is_refused(
    name: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        asked(model_of(name), 0, **options)


def test_without_constrained_decoding_no_call_can_be_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small.renderer().__class__, "vocabulary", lambda self: None)
    network = tiny_network(320, layers=1, width=8, heads=2, context=1024, seed=3)
    model = ResidentModel("policy", network, small.renderer(), context=1024)
    with pytest.raises(InputError, match=r"lacks here; pip install 'palaestra\[serving\]'"):
        asked(model, 0)
