"""Renderers over the chat templates of `templates/`, with SmolLM2's vocabulary."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.local.weights import prepare
from palaestra.models.renderers.chat_template import TemplateRenderer

FOLDER = Path(__file__).parent / "templates"
NAMES = (
    "qwen2_5",
    "qwen3",
    "qwen_xml",
    "smollm3",
    "llama3",
    "llama_python",
    "mistral",
    "deepseek",
    "glm",
    "gpt_oss",
    "gemma3",
    "gemma4",
    "kimi",
    "minimax",
)
CONTROL = {
    "llama3": (
        "<|begin_of_text|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|python_tag|>",
    ),
    "mistral": (
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_CALLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
    ),
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "glm": (
        "[gMASK]",
        "<|endoftext|>",
        "<sop>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
    ),
    "gpt_oss": (
        "<|startoftext|>",
        "<|return|>",
        "<|start|>",
        "<|end|>",
        "<|call|>",
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
    ),
    "gemma3": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
    "gemma4": (
        "<bos>",
        "<eos>",
        "<|turn>",
        "<turn|>",
        "<|tool>",
        "<tool|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|channel>",
        "<channel|>",
        '<|"|>',
    ),
    "kimi": (
        "[BOS]",
        "[EOS]",
        "<|im_system|>",
        "<|im_user|>",
        "<|im_assistant|>",
        "<|im_middle|>",
        "<|im_end|>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ),
    "minimax": ("]~!b[", "[e~[", "]~b]"),
}
CONTROL["llama_python"] = CONTROL["llama3"]


def source(name: str) -> str:
    """Return a template of `templates/`."""
    if name == "qwen3_5":
        return thinking((FOLDER / "qwen_xml.jinja").read_text())
    if name == "llama_python":
        return in_python((FOLDER / "llama3.jinja").read_text())
    return (FOLDER / f"{name}.jinja").read_text()


def thinking(qwen: str) -> str:
    """Return the template of Qwen3-Coder with thoughts that each prompt opens, as Qwen 3.5 does."""
    opens = qwen.replace(
        "<|im_start|>assistant\\n' }}{% endif", "<|im_start|>assistant\\n<think>\\n' }}{% endif"
    )
    return opens.replace(
        "'<|im_start|>' + message.role + '\\n' + message.content",
        "'<|im_start|>' + message.role + '\\n'"
        " + ('<think>\\n' + message.reasoning_content | default('')"
        " + '\\n</think>\\n\\n' if message.role == 'assistant' else '') + message.content",
    )


def in_python(llama: str) -> str:
    """Return the template of Llama 3 with calls written as Llama 3.2 and 4 write them in Python."""
    start = llama.index("        {%- if message.tool_calls")
    end = llama.index("    {%- elif message.role == 'tool'")
    calls = (
        "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n[' }}"
        "{%- for call in message.tool_calls %}{{ ', ' if not loop.first }}{{ call.function.name }}("
        "{%- for key, value in call.function.arguments.items() %}{{ ', ' if not loop.first }}"
        "{{ key }}={{ value | tojson if value is string else value }}{% endfor %}){% endfor %}"
        "{{- ']<|eot_id|>' }}"
    )
    return llama[:start] + calls + llama[end:]


def tokenizer(name: str) -> Any:
    """Return SmolLM2's tokenizer with a template, and the control tokens that it needs."""
    found = AutoTokenizer.from_pretrained(prepare("smollm2-135m", print), local_files_only=True)
    found.chat_template = source(name)
    if name in CONTROL:
        start, end, *_ = CONTROL[name]
        found.add_tokens(list(CONTROL[name]), special_tokens=True)
        found.add_special_tokens({"bos_token": start, "eos_token": end})
    return found


def vocabulary(name: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of some hundred tokens, with the control tokens of a template."""
    texts = ["left or right?", "<think>\nWhich?\n</think>\n\nleft", "analysis final assistant user"]
    _, end, *_ = CONTROL.get(name, ("", "<|im_end|>"))
    found = PreTrainedTokenizerFast(tokenizer_object=learn_vocabulary(texts, 320), eos_token=end)
    found.add_tokens(list(CONTROL.get(name, ())), special_tokens=True)
    return found


@cache
def tiny(name: str, keep_thoughts: bool = False) -> TemplateRenderer:
    """Return the renderer of a template with a vocabulary of some hundred tokens."""
    found = vocabulary(name)
    found.chat_template = source(name)
    return TemplateRenderer(found, name, keep_thoughts=keep_thoughts)


@cache
def renderer(name: str) -> TemplateRenderer:
    """Return the renderer of a template."""
    return TemplateRenderer(tokenizer(name), name)
