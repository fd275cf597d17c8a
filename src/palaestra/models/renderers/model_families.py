"""Families of models: how each writes tool calls and reasoning, and what it is recognised by.

A family is a candidate for a chat template if all its markers are in the template or are tokens of
the vocabulary; names of files and models decide nothing. `detect_format` then tries the candidates
in the order of the table: a conversation with a call is rendered, and the family whose syntax reads
the call back is the right one. A template without one gets tools as text (see `tool_text`).

Sources: the published chat templates of the families, and OpenAI's description of Harmony.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from palaestra.core.model import Reply, ReplyParser
from palaestra.models.renderers import call_syntax, harmony
from palaestra.models.renderers.call_syntax import CallSyntax
from palaestra.models.renderers.reply_parser import TAGS, TagParser, Tags

Ids = Literal["any", "short", "numbered"]
"""The ids of calls that templates take: any, nine letters and digits, or `functions.NAME:0`."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models."""

    name: str
    calls: CallSyntax | None  # None: in channels, see `harmony`
    markers: tuple[str, ...] = ()  # by which it is recognised, all of them
    marks: frozenset[str] = frozenset()  # special tokens within replies, in some vocabularies
    end: str = ""  # the token that the model ends a reply with, if its template writes another
    role_ends: tuple[str, ...] = ()  # tokens that end a reply and begin the next message


def _marks(*names: str) -> frozenset[str]:
    return frozenset(names)


_TOOL_CALL = ("<tool_call>", "</tool_call>")
_GLM_ARGUMENTS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_GEMMA_CALL = ("<|tool_call>", "<tool_call|>", '<|"|>')
_FUNCTION_CALL = ("<start_function_call>", "<end_function_call>", "<escape>")
_DEEPSEEK_CALLS = tuple(
    f"<｜tool▁{part}｜>" for part in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")
)
_KIMI_CALLS = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
)

FAMILIES = (
    Family(
        "gpt-oss",
        None,
        (harmony.CHANNEL, harmony.MESSAGE),
        harmony.MARKS,
        end=harmony.RETURN,
    ),
    Family("Kimi K2", call_syntax.KIMI, _KIMI_CALLS[1:3], _marks(*_KIMI_CALLS)),
    Family("DeepSeek", call_syntax.DEEPSEEK, _DEEPSEEK_CALLS[1:3], _marks(*_DEEPSEEK_CALLS)),
    Family(
        "MiniMax M2",
        call_syntax.MINIMAX,
        ("<minimax:tool_call>",),
        _marks("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    Family(
        "Gemma 4",
        call_syntax.GEMMA,
        _GEMMA_CALL[:1],
        _marks(*_GEMMA_CALL),
        role_ends=("<|tool_response>",),
    ),
    Family(
        "FunctionGemma",
        call_syntax.FUNCTION_GEMMA,
        _FUNCTION_CALL[:1],
        _marks(*_FUNCTION_CALL),
        role_ends=("<start_function_response>",),
    ),
    Family("Gemma 3 in Python", call_syntax.FENCED_PYTHON, ("```tool_code",)),
    Family(
        "GLM 4.5",
        call_syntax.GLM,
        ("<tool_call>", "<arg_key>"),
        _marks(*_TOOL_CALL, *_GLM_ARGUMENTS),
        role_ends=("<|user|>", "<|observation|>"),
    ),
    Family(
        "Qwen2.5-Coder",
        call_syntax.CODER,
        ("<tool_call>", '{{\\"name\\"'),
        _marks(*_TOOL_CALL),
    ),
    Family("Hermes", call_syntax.HERMES, ("<tool_call>",), _marks(*_TOOL_CALL)),
    Family("Qwen3-Coder", call_syntax.QWEN_XML, ("<function=",), _marks(*_TOOL_CALL)),
    Family(
        "Mistral",
        call_syntax.MISTRAL,
        ("[TOOL_CALLS]",),
        _marks("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    ),
    Family("Llama 3", call_syntax.JSON, marks=_marks("<|python_tag|>")),
    Family("Llama 3.2 in Python", call_syntax.PYTHON, marks=_marks("<|python_tag|>")),
)
"""All families, in the order in which they are tried; the last two have no marks of their own."""

WORDS = Family("text", call_syntax.HERMES, marks=_marks(*_TOOL_CALL))
"""What is used where no family fits: tools as text, calls in Hermes's tags."""


def candidates(source: str, vocabulary: Collection[str]) -> Iterator[Family]:
    """Yield the families whose markers are in a chat template or in a vocabulary."""
    for family in FAMILIES:
        if all(marker in source or marker in vocabulary for marker in family.markers):
            yield family


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """How the replies of one model are parsed."""

    family: Family = WORDS
    parallel: bool = True  # whether one reply may make several calls
    reasoning: Tags | None = None  # None: the model has no separate reasoning, or has channels
    opened: bool = False  # whether each prompt ends in the opening tag

    @property
    def marks(self) -> frozenset[str]:
        """The special tokens that belong to the text of replies."""
        tags = () if self.reasoning is None else (self.reasoning.open, self.reasoning.close)
        return self.family.marks | {*tags, *(["<|channel>"] if self.reasoning is TAGS[2] else [])}

    @property
    def thought_end(self) -> str:
        """The text that ends a thought; empty if the model has none."""
        if self.family.calls is None:
            return harmony.END
        return "" if self.reasoning is None else self.reasoning.close

    def parser(self, calls: bool = True) -> ReplyParser:
        """Return a parser of one reply; without `calls`, calls are text."""
        if self.family.calls is None:
            return harmony.HarmonyParser(calls)
        syntax = self.family.calls if calls else None
        return TagParser(self.reasoning, self.opened, syntax, self.parallel)

    def parse(self, text: str, calls: bool = True) -> Reply:
        """Parse a whole reply; a text without calls and reasoning is returned unchanged."""
        return self.parser(calls).parse(text)
