"""Call syntaxes: how the families of models write tool calls, and how one is read.

A syntax names the texts that open a call, and reads the call from there with a `Scanner`. A
malformed call stays in the text, so that it is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.core.message import ToolCall
from palaestra.models.renderers.scanner import DEEPEST, Malformed, Scanner

Read = Callable[[Scanner], list[ToolCall]]


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """One way to write tool calls."""

    name: str
    opens: tuple[str, ...]  # each of these texts may begin calls
    read: Read  # reads calls from such a text on, at least one
    whole: bool = False  # calls are the whole reply, or they are text


def _hermes(text: Scanner) -> list[ToolCall]:
    """Read `<tool_call>{"name": "f", "arguments": {…}}</tool_call>`; the last may be cut."""
    text.mark("<tool_call>")
    text.blanks()
    calls = _calls(text.json())
    _closed(text, "</tool_call>")
    return calls


def _coder(text: Scanner) -> list[ToolCall]:
    """Read `{{"name": "f", "arguments": {…}}}` in Hermes's tags or without; or as Hermes has it.

    Qwen2.5-Coder writes so, because its template shows the form with doubled outer braces. It also
    writes the object alone, or in a fence. Outside the tags, an object without arguments is text,
    and so is a tool's schema, which it sometimes repeats.
    """
    opening = text.optional("<tool_call>", "```json")
    text.blanks()
    doubled = text.optional("{{")
    text.place -= len(doubled) // 2
    value = text.json()
    if opening != "<tool_call>" and not (isinstance(value, dict) and "arguments" in value):
        raise Malformed
    calls = _calls(value)
    place = text.place
    text.blanks()
    if not text.optional("}"):  # which it often forgets, and writes where it opened one alone
        text.place = place
    if opening == "<tool_call>":
        _closed(text, "</tool_call>")
    elif opening:
        text.blanks()
        text.optional("```")
    return calls


def _qwen_xml(text: Scanner) -> list[ToolCall]:
    """Read `<tool_call><function=f><parameter=key>value</parameter>…</function></tool_call>`."""
    text.mark("<tool_call>")
    text.blanks()
    text.mark("<function=")
    name = _name(text.until(">", "\n"))
    text.mark(">")
    arguments = {}
    text.blanks()
    while text.mark("<parameter=", "</function>") == "<parameter=":
        key = text.until(">", "\n")
        text.mark(">")
        arguments[key] = _line(text.until("</parameter>"))
        text.mark("</parameter>")
        text.blanks()
    _closed(text, "</tool_call>")
    return [ToolCall(name, arguments)]


def _glm(text: Scanner) -> list[ToolCall]:
    """Read `<tool_call>f<arg_key>key</arg_key><arg_value>value</arg_value>…</tool_call>`."""
    text.mark("<tool_call>")
    name = _name(text.until("<", "{"))
    arguments = {}
    while text.mark("<arg_key>", "</tool_call>") == "<arg_key>":
        key = text.until("</arg_key>")
        text.mark("</arg_key>")
        text.blanks()
        text.mark("<arg_value>")
        arguments[key] = text.until("</arg_value>")
        text.mark("</arg_value>")
        text.blanks()
    return [ToolCall(name, arguments)]


def _minimax(text: Scanner) -> list[ToolCall]:
    """Read `<minimax:tool_call><invoke name="f"><parameter name="key">value</parameter>…`."""
    text.mark("<minimax:tool_call>")
    text.blanks()
    calls = []
    text.mark('<invoke name="')
    while True:
        name = _name(text.until('"'))
        text.mark('">')
        text.blanks()
        arguments = {}
        while text.mark('<parameter name="', "</invoke>").startswith("<parameter"):
            key = text.until('"')
            text.mark('">')
            arguments[key] = text.until("</parameter>")
            text.mark("</parameter>")
            text.blanks()
        calls.append(ToolCall(name, arguments))
        text.blanks()
        if text.mark('<invoke name="', "</minimax:tool_call>").startswith("</"):
            return calls


def _mistral(text: Scanner) -> list[ToolCall]:
    """Read `[TOOL_CALLS] [{"name": "f", …, "id": "…"}]`, or `[TOOL_CALLS]f[CALL_ID]…[ARGS]{…}`."""
    text.mark("[TOOL_CALLS]")
    text.blanks()
    if text.sees("["):
        return _calls(text.json())
    name, id = _name(text.until("[", "{")), ""
    if text.optional("[CALL_ID]"):
        id = text.until("[", "{").strip()
    text.optional("[ARGS]")
    text.blanks()
    return [ToolCall(name, _arguments(text.json()), id)]


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>")


def _deepseek(text: Scanner) -> list[ToolCall]:
    """Read `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`, within a section or not.

    Before V3.1 it is `function<｜tool▁sep｜>f`, and the arguments are in a fence.
    """
    if text.optional(_DEEPSEEK[0]):
        text.blanks()
    text.mark(_DEEPSEEK[1])
    name = text.until("<｜tool▁sep｜>")
    text.mark("<｜tool▁sep｜>")
    fenced = name.strip() == "function" and not text.sees("{")
    if fenced:
        name = text.until("\n", "<")
        text.mark("\n```json\n")
    text.blanks()
    call = ToolCall(_name(name), _arguments(text.json()))
    text.blanks()
    if fenced:
        text.mark("```")
        text.blanks()
    text.mark("<｜tool▁call▁end｜>")
    _section_end(text, "<｜tool▁calls▁end｜>")
    return [call]


_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>")


def _kimi(text: Scanner) -> list[ToolCall]:
    """Read `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`."""
    if text.optional(_KIMI[0]):
        text.blanks()
    text.mark(_KIMI[1])
    id = text.until("<|tool_call_argument_begin|>").strip()
    text.mark("<|tool_call_argument_begin|>")
    text.blanks()
    call = ToolCall(_name(kimi_name(id)), _arguments(text.json()), id)
    text.blanks()
    text.mark("<|tool_call_end|>")
    _section_end(text, "<|tool_calls_section_end|>")
    return [call]


def kimi_name(id: str) -> str:
    """Return the tool in an id of the form `functions.NAME:NUMBER`, else an empty text."""
    found = re.fullmatch(r"functions\.(.+):\d+", id)
    return "" if found is None else found[1]


def _gemma(opens: str, closes: str, quote: str) -> Read:
    """Return a reader of `call:f{key:VALUE,…}` in marks, with texts between quote marks."""

    def read(text: Scanner) -> list[ToolCall]:
        text.mark(opens)
        text.mark("call:")
        name = _name(text.until("{"))
        arguments = _gemma_value(text, quote)
        text.mark(closes)
        return [ToolCall(name, arguments)]

    return read


def _gemma_value(text: Scanner, quote: str, depth: int = 0) -> Any:
    """Read a text in quote marks, an object, a list, or a JSON constant."""
    if depth > DEEPEST:
        raise Malformed
    text.blanks()
    opening = text.optional(quote, "{", "[")
    if opening == quote:
        words = text.until(quote)
        text.mark(quote)
        return words
    if not opening:
        return _constant(text.until(",", "}", "]"))
    found: list[Any] = []
    close = {"{": "}", "[": "]"}[opening]
    text.blanks()
    if text.optional(close):
        return {} if opening == "{" else []
    while True:
        if opening == "{":
            key = _gemma_key(text, quote)
            found.append((key, _gemma_value(text, quote, depth + 1)))
        else:
            found.append(_gemma_value(text, quote, depth + 1))
        text.blanks()
        if text.mark(",", close) == close:
            return dict(found) if opening == "{" else found


def _gemma_key(text: Scanner, quote: str) -> str:
    text.blanks()
    quoted = text.optional(quote)
    key = text.until(quote) if quoted else text.until(":").strip()
    text.mark(f"{quoted}:")
    return key


def _constant(text: str) -> Any:
    values = Scanner(f"[{text}]", 0, ended=True).json()
    if len(values) != 1:
        raise Malformed
    return values[0]


def _python_in(opens: str, closes: str) -> Read:
    """Return a reader of calls in Python between marks."""

    def read(text: Scanner) -> list[ToolCall]:
        text.mark(opens)
        text.blanks()
        calls = text.calls_in_python()
        text.blanks()
        _closed(text, closes)
        return _some(calls)

    return read


def _python(text: Scanner) -> list[ToolCall]:
    """Read `[f(key=value), …]` as the whole reply."""
    text.optional("<|python_tag|>")
    text.blanks()
    if not text.sees("["):
        raise Malformed
    calls = text.calls_in_python()
    return _some(_at_the_end(text, calls))


def _json(text: Scanner) -> list[ToolCall]:
    """Read `{"name": "f", "parameters": {…}}` as the whole reply, or a python tag and a call.

    After the tag, a tool of Llama's own is called as `brave_search.call(query="…")`.
    """
    tag = text.optional("<|python_tag|>")
    text.blanks()
    if text.sees("{"):
        value = text.json()
        if not isinstance(value, dict) or not {"arguments", "parameters"} & set(value):
            raise Malformed
        return _at_the_end(text, _calls(value))
    if not tag:
        raise Malformed
    calls = _at_the_end(text, text.calls_in_python())
    return [ToolCall(call.name.removesuffix(".call"), call.arguments) for call in _some(calls)]


HERMES = CallSyntax("hermes", ("<tool_call>",), _hermes)
CODER = CallSyntax(
    "hermes, braces doubled or bare",
    ("<tool_call>", "```json", '{{"name":', '{"name":', '{\n  "name":', '{\n    "name":'),
    _coder,
)
QWEN_XML = CallSyntax("qwen xml", ("<tool_call>",), _qwen_xml)
GLM = CallSyntax("glm", ("<tool_call>",), _glm)
MINIMAX = CallSyntax("minimax", ("<minimax:tool_call>",), _minimax)
MISTRAL = CallSyntax("mistral", ("[TOOL_CALLS]",), _mistral)
DEEPSEEK = CallSyntax("deepseek", _DEEPSEEK, _deepseek)
KIMI = CallSyntax("kimi", _KIMI, _kimi)
GEMMA = CallSyntax("gemma", ("<|tool_call>",), _gemma("<|tool_call>", "<tool_call|>", '<|"|>'))
FUNCTION_GEMMA = CallSyntax(
    "function gemma",
    ("<start_function_call>",),
    _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
)
FENCED_PYTHON = CallSyntax("fenced python", ("```tool_code",), _python_in("```tool_code", "```"))
PYTHON = CallSyntax("python", ("[", "<|python_tag|>"), _python, whole=True)
JSON = CallSyntax("json", ("{", "<|python_tag|>"), _json, whole=True)


def _calls(value: Any) -> list[ToolCall]:
    """Return the calls of a JSON object or of a list of them."""
    return _some([_call(item) for item in (value if isinstance(value, list) else [value])])


def _call(value: Any) -> ToolCall:
    if not isinstance(value, Mapping):
        raise Malformed
    name, id = value.get("name"), value.get("id") or ""
    arguments = value.get("arguments", value.get("parameters", {}))
    if not isinstance(name, str) or not isinstance(id, str):
        raise Malformed
    return ToolCall(_name(name), _arguments(arguments), id)


def _name(text: str) -> str:
    if not text.strip() or "\n" in text.strip():
        raise Malformed
    return text.strip()


def _arguments(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed
    return value


def _some(calls: list[ToolCall]) -> list[ToolCall]:
    if not calls:
        raise Malformed
    return calls


def _line(text: str) -> str:
    """Return a value without the line breaks that set it apart from its tags."""
    return text.removeprefix("\n").removesuffix("\n")


def _closed(text: Scanner, mark: str) -> None:
    """Skip a closing mark, which the end of the reply may have cut off."""
    text.blanks()
    if not text.ends():
        text.mark(mark)


def _section_end(text: Scanner, mark: str) -> None:
    """Skip the end of a section if it is here."""
    place = text.place
    text.blanks()
    if text.ends() or not text.optional(mark):
        text.place = place


def _at_the_end(text: Scanner, calls: list[ToolCall]) -> list[ToolCall]:
    """Return the calls if nothing follows them."""
    text.blanks()
    if not text.ends():
        raise Malformed
    return calls
