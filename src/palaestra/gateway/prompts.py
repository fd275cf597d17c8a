"""Prompts from programs' questions.

A model with native tools receives the program's messages unchanged, part for part. For any other
model the tools, their calls and their results are rendered as text; see `hermes_tags.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from palaestra.core.message import Message, Reasoning, system
from palaestra.gateway import hermes_tags
from palaestra.gateway.program_requests import Question
from palaestra.gateway.reply_history import ReplyHistory
from palaestra.gateway.structured_output import Form


class BuiltPrompt(NamedTuple):
    """The messages of a prompt, and what it leaves out."""

    messages: list[Message]
    lost: frozenset[str]  # parts of the question that were dropped: "reasoning", "error"


def build_prompt(
    question: Question, replies: ReplyHistory, *, native: bool, form: Form | None = None
) -> BuiltPrompt:
    """Build the prompt of a question.

    Args:
        question: what the program asks.
        replies: this session's replies, whose recorded parts replace what is sent back.
        native: whether the model takes tools, calls and results as they are.
        form: the reply format that the prompt must request; None: none.
    """
    added = [] if native or not question.tools else [_tools(question)]
    added += [] if form is None else [form.instructions]
    messages = list(question.messages)
    found: list[Message] = []
    lost: set[str] = set()
    if added:
        own = messages[:1] if messages and messages[0].message.role == "system" else []
        found.append(system("\n\n".join([*(one.message.text for one in own), *added])))
        del messages[: len(own)]
    for received in messages:
        message = received.message
        if message.role == "assistant":
            recorded = replies.recorded(received, found)
            if recorded is not None:
                found.append(recorded)
                continue
        if native:
            found.append(message)
            continue
        lost |= set(_dropped(message))
        text = hermes_tags.as_text(message)
        found += [] if text is None else [text]
    return BuiltPrompt(found, frozenset(lost))


def _tools(question: Question) -> str:
    return hermes_tags.instructions(question.tools, question.tool_choice)


def _dropped(message: Message) -> Iterator[str]:
    """Yield what a message rendered as text leaves out."""
    if any(isinstance(part, Reasoning) for part in message.parts):
        yield "reasoning"
    if any(result.error for result in message.tool_results):
        yield "error"
