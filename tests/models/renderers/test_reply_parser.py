"""Reply parsing by family: whole, and in chunks of any size, with equal parts."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.message import ToolCall
from palaestra.core.model import Reply, joined
from palaestra.models.renderers.call_syntax import HERMES as HERMES_SYNTAX
from palaestra.models.renderers.call_syntax import CallSyntax
from palaestra.models.renderers.model_families import FAMILIES, WORDS, Family, ReplyFormat
from palaestra.models.renderers.reply_parser import TAGS
from palaestra.models.renderers.scanner import Scanner

CALL = ToolCall("swap", {"place": 2, "note": 'a "b" {c}'})
TEXTS = ToolCall("swap", {"place": "2", "note": 'a "b" {c}'})  # before its schema is known
JSON = '{"place": 2, "note": "a \\"b\\" {c}"}'
THINK, BRACKET, CHANNEL = TAGS
BY_NAME = {family.name: family for family in (*FAMILIES, WORDS)}


def format_of(name: str, **options: object) -> ReplyFormat:
    return ReplyFormat(BY_NAME[name], **options)  # type: ignore[arg-type]


def xml(open: str, call: str, end: str) -> str:
    return f"{open}{call}{end}"


def pairs(before: str, between: str, after: str) -> str:
    parts = (("place", "2"), ("note", 'a "b" {c}'))
    return "".join(f"{before}{key}{between}{value}{after}" for key, value in parts)


HERMES = f'<tool_call>\n{{"name": "swap", "arguments": {JSON}}}\n</tool_call>'
DOUBLED = f'{{{{"name": "swap", "arguments": {JSON}}}}}'
INDENTED = json.dumps({"name": "swap", "arguments": json.loads(JSON)}, indent=2)
QWEN_XML = xml(
    "<tool_call>\n<function=swap>\n",
    pairs("<parameter=", ">\n", "\n</parameter>\n"),
    "</function>\n</tool_call>",
)
GLM = xml(
    "<tool_call>swap\n",
    pairs("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    "</tool_call>",
)
MINIMAX = xml(
    '<minimax:tool_call>\n<invoke name="swap">\n',
    pairs('<parameter name="', '">', "</parameter>\n"),
    "</invoke>\n</minimax:tool_call>",
)
MISTRAL_LIST = f'[TOOL_CALLS] [{{"name": "swap", "arguments": {JSON}, "id": "abcdefghi"}}]'
MISTRAL = f"[TOOL_CALLS]swap[CALL_ID]abcdefghi[ARGS]{JSON}"
DEEPSEEK = (
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>swap<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>"
)
DEEPSEEK_V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>swap\n```json\n"
    f"{JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.swap:3"
    f"<|tool_call_argument_begin|>{JSON}<|tool_call_end|><|tool_calls_section_end|>"
)
GEMMA = '<|tool_call>call:swap{place:2,note:<|"|>a "b" {c}<|"|>}<tool_call|>'
FUNCTION = (
    '<start_function_call>call:swap{place:2,note:<escape>a "b" {c}<escape>}<end_function_call>'
)
PYTHON = """swap(place=2, note='a "b" {c}')"""
HARMONY = (
    "<|channel|>analysis<|message|>Which one?<|end|><|start|>assistant<|channel|>commentary "
    f"to=functions.swap <|constrain|>json<|message|>{JSON}"
)
THOUGHT = "Which one?"

CASES = {
    "hermes": (format_of("Hermes"), f"Now.\n{HERMES}", Reply("Now.", "", (CALL,))),
    "two": (format_of("Hermes"), f"{HERMES}\n{HERMES}", Reply("", "", (CALL, CALL))),
    "between": (format_of("Hermes"), f"{HERMES} so\n{HERMES}\n", Reply("so", "", (CALL, CALL))),
    "one too many": (
        format_of("Hermes", parallel=False),
        f"Now.\n{HERMES}{HERMES}\n",
        Reply(f"Now.\n{HERMES}{HERMES}\n"),
    ),
    "one": (format_of("Hermes", parallel=False), f"Now. {HERMES}\n", Reply("Now.", "", (CALL,))),
    "coder": (format_of("Qwen2.5-Coder"), f"Now.\n{DOUBLED}", Reply("Now.", "", (CALL,))),
    "coder in tags": (
        format_of("Qwen2.5-Coder"),
        f"<tool_call>\n{DOUBLED}\n</tool_call>\n{HERMES}",
        Reply("", "", (CALL, CALL)),
    ),
    "coder with a brace too few": (
        format_of("Qwen2.5-Coder"),
        f"{DOUBLED.removesuffix('}')} so",
        Reply("so", "", (CALL,)),
    ),
    "coder in a fence": (
        format_of("Qwen2.5-Coder"),
        f"Now.\n```json\n{INDENTED}\n```\nDone.",
        Reply("Now.\n\nDone.", "", (CALL,)),
    ),
    "coder with a brace too many": (
        format_of("Qwen2.5-Coder"),
        f"<tool_call>\n{INDENTED}\n}}\n</tool_call>\n{INDENTED}}}",
        Reply("", "", (CALL, CALL)),
    ),
    "coder without a fence": (format_of("Qwen2.5-Coder"), INDENTED, Reply("", "", (CALL,))),
    "coder with data": (
        format_of("Qwen2.5-Coder"),
        'See:\n```json\n{"name": "Ann"}\n```',
        Reply('See:\n```json\n{"name": "Ann"}\n```'),
    ),
    "coder with a schema": (
        format_of("Qwen2.5-Coder"),
        '<tools>{"name": "swap", "parameters": {"type": "object"}}</tools>',
        Reply('<tools>{"name": "swap", "parameters": {"type": "object"}}</tools>'),
    ),
    "qwen xml": (format_of("Qwen3-Coder"), f"Now.\n\n{QWEN_XML}", Reply("Now.", "", (TEXTS,))),
    "glm": (
        format_of("GLM 4.5", reasoning=THINK),
        f"\n<think>{THOUGHT}</think>\nNow.\n{GLM}",
        Reply("Now.", THOUGHT, (TEXTS,)),
    ),
    "minimax": (
        format_of("MiniMax M2", reasoning=THINK, opened=True),
        f"{THOUGHT}\n</think>\n\n{MINIMAX}",
        Reply("", THOUGHT, (TEXTS,)),
    ),
    "mistral list": (
        format_of("Mistral"),
        MISTRAL_LIST,
        Reply("", "", (ToolCall("swap", CALL.arguments, "abcdefghi"),)),
    ),
    "mistral": (
        format_of("Mistral", reasoning=BRACKET),
        f"[THINK]{THOUGHT}[/THINK]{MISTRAL}[TOOL_CALLS]swap{JSON}",
        Reply("", THOUGHT, (ToolCall("swap", CALL.arguments, "abcdefghi"), CALL)),
    ),
    "deepseek": (format_of("DeepSeek"), f"Now.{DEEPSEEK}", Reply("Now.", "", (CALL,))),
    "deepseek v3": (format_of("DeepSeek"), DEEPSEEK_V3, Reply("", "", (CALL,))),
    "kimi": (
        format_of("Kimi K2"),
        f"Now.{KIMI}",
        Reply("Now.", "", (ToolCall("swap", CALL.arguments, "functions.swap:3"),)),
    ),
    "gemma 4": (
        format_of("Gemma 4", reasoning=CHANNEL),
        f"<|channel>thought\n{THOUGHT}\n<channel|>{GEMMA}",
        Reply("", THOUGHT, (CALL,)),
    ),
    "function gemma": (format_of("FunctionGemma"), FUNCTION, Reply("", "", (CALL,))),
    "gemma in python": (
        format_of("Gemma 3 in Python"),
        f"So:\n```tool_code\nprint({PYTHON})\n```",
        Reply("So:", "", (CALL,)),
    ),
    "llama": (
        format_of("Llama 3"),
        f'{{"name": "swap", "parameters": {JSON}}}',
        Reply("", "", (CALL,)),
    ),
    "plain json": (
        format_of("Llama 3"),
        f' {{"name": "swap", "arguments": {JSON}}}\n',
        Reply("", "", (CALL,)),
    ),
    "llama's own tools": (
        format_of("Llama 3"),
        '<|python_tag|>brave_search.call(query="a b")',
        Reply("", "", (ToolCall("brave_search", {"query": "a b"}),)),
    ),
    "llama in python": (
        format_of("Llama 3.2 in Python"),
        f"[{PYTHON}, {PYTHON}]",
        Reply("", "", (CALL, CALL)),
    ),
    "gpt-oss": (format_of("gpt-oss"), HARMONY, Reply("", THOUGHT, (CALL,))),
    "gpt-oss as its template writes it": (
        format_of("gpt-oss"),
        f" to=functions.swap<|channel|>commentary json<|message|>{JSON}<|call|>",
        Reply("", "", (CALL,)),
    ),
    "gpt-oss answers": (
        format_of("gpt-oss"),
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final"
        "<|message|> There.\n",
        Reply(" There.\n", THOUGHT),
    ),
    "gpt-oss says what it does": (
        format_of("gpt-oss"),
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.swap <|constrain|>json<|message|>{JSON}<|call|>",
        Reply("I look.", "", (CALL,)),
    ),
}
MALFORMED = {
    "hermes": ("Hermes", "Now. <tool_call>\n{oops}\n</tool_call>\n"),
    "cut": (
        "Hermes",
        '<tool_call>{"name": "swap", "arguments": {"a": 2</tool_call>',
    ),
    "coder": ("Qwen2.5-Coder", '{{"name": "swap", "arguments": {oops}}}'),
    "qwen xml": ("Qwen3-Coder", "<tool_call><function=swap><parameter=place>2</function>"),
    "glm": ("GLM 4.5", "<tool_call>swap<arg_key>place</arg_key>2</tool_call>"),
    "glm given json": ("GLM 4.5", HERMES),
    "minimax": ("MiniMax M2", "<minimax:tool_call>swap</minimax:tool_call>"),
    "mistral": ("Mistral", '[TOOL_CALLS]swap[ARGS]{"place": NaN}'),
    "deepseek": ("DeepSeek", "<｜tool▁call▁begin｜>swap<｜tool▁sep｜>2<｜tool▁call▁end｜>"),
    "kimi without an id": (
        "Kimi K2",
        "<|tool_call_begin|>swap<|tool_call_argument_begin|>{}<|tool_call_end|>",
    ),
    "gemma 4": ("Gemma 4", "<|tool_call>call:swap{place:<|tool_call>}<tool_call|>"),
    "gemma without a value": ("Gemma 4", "<|tool_call>call:swap{place:}<tool_call|>"),
    "gemma in python": ("Gemma 3 in Python", "```tool_code\nimport os\n```"),
    "python without names": ("Llama 3.2 in Python", "[swap(2)]"),
    "python with code": ("Llama 3.2 in Python", "[swap(place=open('x'))]"),
    "llama": ("Llama 3", '{"name": "swap", "parameters": {"place": 2}} or so'),
    "llama, two": ("Llama 3", '{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}'),
    "llama's code": ("Llama 3", "<|python_tag|>print(1 + 1)"),
    "json of something else": ("Llama 3", '{"name": "Bob", "age": 3}'),
    "gpt-oss": ("gpt-oss", "<|channel|>commentary to=functions.swap<|message|>{oops"),
    "gpt-oss, a tool of its own": ("gpt-oss", "<|channel|>analysis to=python<|message|>1 + 1"),
    "gpt-oss without channels": ("gpt-oss", "There."),
}


def in_chunks(format: ReplyFormat, chunks: list[str], calls: bool = True) -> Reply:
    parser = format.parser(calls)
    return joined([*(parser.feed(chunk) for chunk in chunks), parser.finish()])


def cut(text: str, places: list[int]) -> list[str]:
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("name", CASES)
def test_each_family_is_read(name: str) -> None:
    format, text, reply = CASES[name]
    assert format.parse(text) == reply


@pytest.mark.parametrize("name", CASES)
def test_no_prefix_of_a_reply_shows_a_part_of_a_tag(name: str) -> None:
    """What is returned on the way is the beginning of what the whole reply gives."""
    format, text, whole = CASES[name]
    parser, found = format.parser(), Reply("")
    for character in text:
        found = joined((found, parser.feed(character)))
        assert whole.text.startswith(found.text)
        assert whole.reasoning.startswith(found.reasoning)
        assert whole.tool_calls[: len(found.tool_calls)] == found.tool_calls
    assert joined((found, parser.finish())) == whole


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_calls_stay_text(name: str) -> None:
    family, text = MALFORMED[name]
    assert format_of(family).parse(text) == Reply(text)
    assert in_chunks(format_of(family), list(text)) == Reply(text)


@pytest.mark.parametrize("name", CASES)
def test_without_tools_calls_are_text_and_reasoning_is_still_apart(name: str) -> None:
    format, _, reply = CASES[name]
    text = CASES[name][1]
    found = format.parse(text, calls=False)
    assert not found.tool_calls and found.reasoning == reply.reasoning
    assert "swap" in found.text or not any(call.name == "swap" for call in reply.tool_calls)


MARKS = sorted(
    {mark for family in FAMILIES for mark in family.marks}
    | {mark for tags in TAGS for mark in (tags.open, tags.close)}
    | set("<>{}[]()\"',:=\\ \n") | {"swap", "call:", "functions.swap:0", "final", "analysis"}
    | {"<function=", "</function>", "<parameter=", "</parameter>", "```tool_code", "```", "1"}
    | {HERMES, QWEN_XML, GLM, MINIMAX, MISTRAL, DEEPSEEK, KIMI, GEMMA, PYTHON, HARMONY, JSON}
)  # fmt: skip
replies = st.lists(st.sampled_from(MARKS), max_size=12).map("".join)
formats = st.builds(
    ReplyFormat,
    st.sampled_from([*FAMILIES, WORDS]),
    st.booleans(),
    st.sampled_from([None, *TAGS]),
    st.booleans(),
)


@settings(max_examples=400)
@given(formats, replies, st.lists(st.integers(0, 10_000), max_size=8), st.booleans())
def test_chunks_change_nothing(
    format: ReplyFormat, text: str, places: list[int], calls: bool
) -> None:
    whole = format.parse(text, calls)
    assert in_chunks(format, cut(text, places), calls) == whole
    assert in_chunks(format, list(text), calls) == whole


@settings(max_examples=200)
@given(formats, replies)
def test_a_reply_without_calls_and_reasoning_is_returned_unchanged(
    format: ReplyFormat, text: str
) -> None:
    found = format.parse(text)
    has_tags = format.reasoning is not None and text.lstrip().startswith(format.reasoning.open)
    if found.tool_calls or has_tags or format.opened or format.family.calls is None:
        return
    assert found == Reply(text)


def test_a_call_that_grows_token_by_token_is_not_read_again_for_each() -> None:
    text = (
        f'<tool_call>{{"name": "swap", "arguments": {{"note": "{"word " * 2_000}"}}}}</tool_call>'
    )
    reads = list[int]()

    def read(text: Scanner) -> list[ToolCall]:
        reads.append(len(text.text))
        return HERMES_SYNTAX.read(text)

    parser = ReplyFormat(Family("counted", CallSyntax("counted", ("<tool_call>",), read))).parser()
    found = [parser.feed(text[start : start + 5]) for start in range(0, len(text), 5)]
    assert len(joined([*found, parser.finish()]).tool_calls) == 1
    assert len(reads) < 8


def test_deep_nesting_is_text() -> None:
    deep = "<|tool_call>call:swap" + "{a:" * 5_000
    assert format_of("Gemma 4").parse(deep) == Reply(deep)
