"""Local models with tools: ChatML beside their own template, sampled calls, exported policies."""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from palaestra.core.errors import InputError
from palaestra.core.message import Message, ToolCall, assistant, system, tool_result, user
from palaestra.core.model import Finish, Prompt, Sampling
from palaestra.core.tool import Tool
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.local.weights import prepare
from palaestra.models.registry import renderer_of
from palaestra.models.renderers.chatml import CHATML_TEMPLATE, ChatMLRenderer
from palaestra.training.policy_building import save_tokenizer
from tests.models.renderers.templating import source

TOOL = Tool("swap", "Swap.", {"type": "object", "properties": {"place": {"type": "integer"}}})
CALL = '<tool_call>\n{"name": "swap", "arguments": {"place": 2}}\n</tool_call>'
TALK = [system("Act."), user("a key"), assistant("forward"), user("a door")]


@cache
def plain() -> ChatMLRenderer:
    return ChatMLRenderer.from_folder(prepare("smollm2-135m", print))


def checkpoint(folder: Path, name: str = "qwen3") -> Path:
    """Return SmolLM2's tokenizer with the chat template of another model."""
    shutil.copytree(
        prepare("smollm2-135m", print), folder, ignore=shutil.ignore_patterns("*.safe*")
    )
    (folder / "chat_template.jinja").write_text(source(name))
    return folder


def test_prompts_without_tools_are_chatml_whatever_the_template_does(tmp_path: Path) -> None:
    render = renderer_of(checkpoint(tmp_path / "model"))
    assert isinstance(render, ChatMLRenderer) and render.native_tools and not plain().native_tools
    assert render.start(TALK) == plain().start(TALK)
    assert render.extend(TALK[:3], TALK[3:], True) == plain().extend(TALK[:3], TALK[3:], True)
    assert render.reply("forward") == plain().reply("forward")


def test_prompts_with_tools_go_through_the_models_own_template(tmp_path: Path) -> None:
    render = renderer_of(checkpoint(tmp_path / "model"))
    shown = "".join(render.token_strings(render.start(TALK, [TOOL])))
    assert shown.startswith("<|im_start|>system\nAct.\n\n# Tools\n\nYou may call one or more")
    reply = render.parse(f"<think>\nWhich?\n</think>\n\n{CALL}")
    assert (reply.text, reply.reasoning, reply.tool_calls) == (
        "",
        "Which?",
        (ToolCall("swap", {"place": 2}),),
    )
    output = assistant("", reasoning="Which?", tool_calls=reply.tool_calls)
    tail = render.extend([*TALK, output], [tool_result("done")], True, [TOOL])
    assert "<tool_response>\ndone\n</tool_response>" in render.text(tail)
    assert "Which?" in render.text(render.reply(output))


def test_an_exported_policy_keeps_its_template_for_tools(tmp_path: Path) -> None:
    render = renderer_of(checkpoint(tmp_path / "model"))
    assert isinstance(render, ChatMLRenderer)
    save_tokenizer(render.tokenizer, tmp_path / "out", render.chat_template)
    again = renderer_of(tmp_path / "out")
    assert isinstance(again, ChatMLRenderer) and again.native_tools
    assert again.start(TALK, [TOOL]) == render.start(TALK, [TOOL])
    assert again.start(TALK) == render.start(TALK)
    assert again.chat_template == render.chat_template
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert config["chat_template"].endswith(CHATML_TEMPLATE + "{% endif %}")


def test_chatml_without_tools_in_its_template_says_them_in_words() -> None:
    output = assistant("Now.", tool_calls=[ToolCall("swap", {"place": 2})])
    history: list[Message] = [user("?"), output]
    new = [tool_result("done")]
    sampled = plain().reply(output)
    whole = plain().start([*history, *new], [TOOL])
    joined = plain().start(history[:1], [TOOL]) + sampled
    assert joined + plain().extend(history, new, True, [TOOL]) == whole
    assert plain().parse(plain().text(sampled)).tool_calls == output.tool_calls
    assert "# Tools" in plain().text(whole) and "<tool_response>\ndone" in plain().text(whole)


# ── the resident model ───────────────────────────────────────────────────────


def resident() -> ResidentModel:
    render = ChatMLRenderer(learn_vocabulary([CALL, "swap", "place"], 400), "tiny")
    network = tiny_network(400, layers=1, width=32, heads=2, context=512, seed=0)
    return ResidentModel("policy", network, render, slots=2, context=512)


def asked(model: ResidentModel, sampling: Sampling, *tools: Tool) -> Prompt:
    tokens = tuple(model.renderer.start([user("?")], tools))
    return Prompt([user("?")], tokens, sampling, 5, tools=tools)


def test_a_sampled_call_comes_back_parsed_and_its_tokens_as_sampled() -> None:
    model = resident()
    sampling = Sampling(choices=(f"Now.\n{CALL}",))
    reply = asyncio.run(model.generate(asked(model, sampling, TOOL)))
    assert reply.text == "Now." and reply.finish is Finish.STOP
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("swap", {"place": 2}) and call.id
    assert model.renderer.text(reply.tokens) == f"Now.\n{CALL}"
    assert len(reply.logprobs) == len(reply.tokens)
    words = asyncio.run(model.generate(asked(model, sampling)))
    assert words.text == f"Now.\n{CALL}" and not words.tool_calls  # no tools were offered


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(parallel_tool_calls=False),
        Sampling(reasoning_effort="low"),
    ],
)
def test_options_that_a_local_model_would_ignore_are_refused(sampling: Sampling) -> None:
    model = resident()
    with pytest.raises(InputError, match="is not supported by the model 'policy'"):
        asyncio.run(model.generate(asked(model, sampling, TOOL)))
