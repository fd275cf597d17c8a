"""Our parsers read what another implementation of the published chat templates writes.

`renderers` (Prime Intellect, Apache-2.0) has each family's template written out in Python, tested
there against the models' own. Install it to run these tests: pip install renderers
"""

from __future__ import annotations

from typing import Any

import pytest

from palaestra.core.message import ToolCall
from palaestra.core.model import Prompt, Reply, Sampling
from palaestra.core.tool import Tool
from palaestra.models.renderers.chat_template import TemplateRenderer
from palaestra.models.renderers.tool_conventions import read_reply
from tests.models.renderers.templating import CONTROL, source, vocabulary

package = pytest.importorskip("renderers")

TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
QWEN = ("<|endoftext|>", *TAGS, "<tool_response>", "</tool_response>")
SEEN = tuple(f"<|{name}|>" for name in ("vision_start", "vision_end", "image_pad", "video_pad"))
GLM = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
PARTS = ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
OUTPUTS = ("outputs▁begin", "outputs▁end", "output▁begin", "output▁end")
DEEPSEEK = tuple(
    f"<｜{name}｜>" for name in ("User", "Assistant", *(f"tool▁{p}" for p in (*PARTS, *OUTPUTS)))
)
CASES = {  # template: the package's configuration, and further special tokens that it wants
    "qwen3": ("Qwen3RendererConfig", QWEN),
    "qwen3_5": ("Qwen35RendererConfig", (*QWEN, *SEEN)),
    "llama3": ("Llama3RendererConfig", ("<|end_of_text|>", "<|eom_id|>")),
    "deepseek": ("DeepSeekV3RendererConfig", DEEPSEEK),
    "glm": ("GLM45RendererConfig", (*TAGS, *GLM)),
    "kimi": ("KimiK2RendererConfig", ()),
    "minimax": (
        "MiniMaxM2RendererConfig",
        (*TAGS[2:], "<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "gemma4": ("Gemma4RendererConfig", ("<|think|>", "<|image>", "<|image|>", "<image|>")),
}
THINKS = ("qwen3", "qwen3_5", "glm", "minimax", "gemma4")
WORDLESS = ("llama3",)
ALONE = ("llama3",)

ARGUMENTS: dict[str, Any] = {
    "city": 'Oslo, "N"',
    "days": 3,
    "exact": True,
    "more": {"a": [1, None]},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
        "more": {"type": "object"},
    },
}
TOOL = Tool("weather", "Forecast.", SCHEMA)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_reply_of_the_other_implementation_is_read(name: str, count: int) -> None:
    if count > 1 and name in ALONE:
        pytest.skip("its template has one call a reply")
    configuration, special = CASES[name]
    tokenizer = vocabulary(name)
    tokenizer.add_tokens(
        [t for t in special if t not in CONTROL.get(name, ())], special_tokens=True
    )
    tokenizer.chat_template = source(name)
    other = package.create_renderer(tokenizer, getattr(package, configuration)())
    function = {"name": "weather", "description": "Forecast.", "parameters": SCHEMA}
    calls = [
        {
            "id": f"functions.weather:{n}",
            "type": "function",
            "function": {"name": "weather", "arguments": ARGUMENTS},
        }
        for n in range(count)
    ]
    words = "" if name in WORDLESS else "I look."
    said = {"role": "assistant", "content": words, "tool_calls": calls}
    if name in THINKS:
        said["reasoning_content"] = "Which city?"
    asked = [{"role": "user", "content": "Weather?"}]
    tools = [{"type": "function", "function": function}]
    prompt = other.render_ids(asked, tools=tools, add_generation_prompt=True)
    whole = other.render([*asked, said], tools=tools)
    reply = [t for t, on in zip(whole.token_ids, whole.sampled_mask, strict=True) if on]
    ours = TemplateRenderer(tokenizer, name)
    given = Prompt((), tuple(prompt), Sampling(), 7, tools=(TOOL,))
    found = read_reply(ours, given, ours.text(reply))
    bare = [ToolCall(call.name, call.arguments) for call in found.tool_calls]
    thought = "Which city?" if name in THINKS else ""
    assert Reply(found.text, found.reasoning, tuple(bare)) == Reply(
        words, thought, (ToolCall("weather", ARGUMENTS),) * count
    )
