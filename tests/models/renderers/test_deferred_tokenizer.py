"""ChatML with tools renders the same whether transformers has read the tokenizer yet or not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.message import ToolCall, assistant, system, tool_result, user
from palaestra.core.tool import Tool
from palaestra.models.local.weights import prepare
from palaestra.models.registry import renderer_of
from palaestra.models.renderers import deferred_tokenizer
from palaestra.models.renderers.chat_template import TemplateRenderer
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.renderers.checkpoint_template import template_of
from tests.models.renderers.templating import source

TOOL = Tool("swap", "Swap.", {"type": "object", "properties": {"place": {"type": "integer"}}})
texts = st.text(st.characters(max_codepoint=0x3FF, exclude_categories=("Cc", "Cs")), max_size=20)
hostile = st.lists(texts | st.sampled_from(["<|im_end|>", "<tool_call>"]), max_size=3).map("".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("model"), source("qwen2_5"))


def checkpoint(folder: Path, template: str) -> Path:
    """Return SmolLM2's tokenizer with another chat template."""
    ignored = shutil.ignore_patterns("*.safe*")
    shutil.copytree(prepare("smollm2-135m", print), folder, ignore=ignored, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def deferred(folder: Path) -> TemplateRenderer:
    vocabulary = ChatMLRenderer.from_folder(folder).tokenizer
    found = template_of(folder, vocabulary)
    assert found is not None
    return found


def test_it_renders_as_the_tokenizer_that_transformers_read(folder: Path) -> None:
    ours, theirs = deferred(folder), TemplateRenderer.from_folder(folder)
    assert ours.native_tools and ours.end_tokens == theirs.end_tokens

    @given(hostile, hostile.map(str.strip), hostile)
    def agree(asked: str, replied: str, answer: str) -> None:
        history = [system("Act."), user(asked)]
        call = assistant(replied, tool_calls=[ToolCall("swap", {"place": 2}, "one")])
        assert ours.start(history, [TOOL]) == theirs.start(history, [TOOL])
        assert ours.reply(call) == theirs.reply(call)
        given = ([*history, call], [tool_result(answer, id="one")], True, [TOOL])
        assert ours.extend(*given) == theirs.extend(*given)

    agree()


def test_a_reply_is_parsed_before_anything_is_encoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise AssertionError("transformers read the vocabulary")

    monkeypatch.setattr(deferred_tokenizer, "read_tokenizer", refuse)
    render = renderer_of(folder)
    assert render.native_tools and not render.thought_end and not render.drops_thoughts
    call = '<tool_call>\n{"name": "swap", "arguments": {"place": 2}}\n</tool_call>'
    reply = render.parse(f"So: {call}", True, render.start([user("?")]))
    assert (reply.text, reply.tool_calls) == ("So:", (ToolCall("swap", {"place": 2}),))
    with pytest.raises(AssertionError, match="read the vocabulary"):
        render.start([user("?")], [TOOL])


@pytest.mark.parametrize(
    "template", [source("qwen3"), source("qwen2_5") + "{% if false %}{{ bos_token }}{% endif %}"]
)
def test_what_the_files_alone_do_not_say_is_read_at_once(template: str, tmp_path: Path) -> None:
    render = deferred(checkpoint(tmp_path, template))
    assert not isinstance(render._tokenizer, deferred_tokenizer.DeferredTokenizer)


def test_a_template_in_the_configuration_is_deferred_too(folder: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path, "")
    (tmp_path / "chat_template.jinja").unlink()
    config = tmp_path / "tokenizer_config.json"
    named = json.loads(config.read_text()) | {"chat_template": source("qwen2_5")}
    config.write_text(json.dumps(named))
    render = deferred(tmp_path)
    assert isinstance(render._tokenizer, deferred_tokenizer.DeferredTokenizer)
    assert render.start([user("?")], [TOOL]) == deferred(folder).start([user("?")], [TOOL])
