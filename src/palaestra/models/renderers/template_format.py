"""Template formats: how a chat template takes messages with tools, and how replies are parsed.

Templates differ in what they take: arguments as an object or as JSON text, ids of a certain form
only, reasoning under a separate key or in the text, calls in the text. So a small conversation with
a call is rendered in each format until one keeps everything: the tool, the result, and the call as
one of the `FAMILIES` reads it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.message import Image, Message, Text, ToolCall, assistant, tool_result, user
from palaestra.core.tool import Tool
from palaestra.models.renderers.call_syntax import kimi_name
from palaestra.models.renderers.model_families import WORDS, Ids, ReplyFormat, candidates
from palaestra.models.renderers.reply_parser import TAGS, Tags
from palaestra.models.renderers.tool_text import with_calls

KEYS = ("reasoning_content", "reasoning", "thinking")  # keys under which templates take reasoning
IMAGE = {"type": "image"}  # as templates take an image: its placeholder is all that they write
SHORT_ID = 9  # characters; some templates take ids of this length only

Render = Callable[[Sequence[Message], Sequence[Tool], "TemplateFormat"], tuple[str, str, str]]
"""Renders a conversation: the text up to its first reply, that reply, and what follows it."""

LOOK_UP = Tool(
    "look_up",
    "Say what a word means.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
MEANINGS = {"palaestra": "a wrestling school", "gymnasion": "a training ground"}


@dataclass(frozen=True, slots=True)
class TemplateFormat:
    """How one chat template takes messages, and how its model's replies are parsed."""

    reply: ReplyFormat
    native: bool = False  # it renders tools, calls and results
    text_arguments: bool = False  # a call's arguments are JSON text
    ids: Ids = "any"
    calls_in_text: bool = False  # calls are part of a reply's text
    reasoning_key: str = ""  # empty: reasoning is part of a reply's text, if present at all
    parts: bool = False  # a content is a list of texts and images, for models that see

    def dicts(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the messages as templates take them: one dictionary each, or one for each result.

        A result without a name gets that of its call.
        """
        names: dict[str, str] = {}  # by the id of the call
        numbered: dict[str, str] = {}  # ids as the template takes them
        found = []
        for message in messages:
            for number, call in enumerate(message.tool_calls):
                names[call.id] = call.name
                numbered[call.id] = self._id(call, number)
            if message.tool_results:
                for part in message.tool_results:
                    name = part.name or names.get(part.id, "")
                    id = numbered.get(part.id) or self._id(ToolCall(name, {}, part.id), 0)
                    last = part is message.tool_results[-1]
                    content = self._content(part.text, message.images if last else ())
                    about = {"role": "tool", "content": content, "tool_call_id": id}
                    found.append(about | ({"name": name} if name else {}))
            else:
                found.append(self._dict(message, numbered))
        return found

    def _dict(self, message: Message, ids: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {"role": message.role, "content": message.text}
        calls = message.tool_calls
        if calls and self.calls_in_text:
            found["content"] = with_calls(message.text, calls)
        elif calls:
            found["tool_calls"] = [self._call(call, ids[call.id]) for call in calls]
        if message.reasoning and self.reasoning_key:
            found[self.reasoning_key] = message.reasoning
        elif message.reasoning and self.reply.reasoning is not None:
            found["content"] = self.reply.reasoning.written(message.reasoning) + found["content"]
        if message.images and self.parts:
            found["content"] = [
                IMAGE if isinstance(part, Image) else {"type": "text", "text": part.text}
                for part in message.parts
                if isinstance(part, Text | Image)
            ]
        else:
            found["content"] = self._content(found["content"])
        return found

    def _content(self, text: str, images: Sequence[Image] = ()) -> Any:
        """Return a content as the template takes it: its text, or a list of parts."""
        if not self.parts:
            return text
        return [{"type": "text", "text": text}, *(IMAGE for _ in images)]

    def _call(self, call: ToolCall, id: str) -> Mapping[str, Any]:
        arguments: Any = dict(call.arguments)
        if self.text_arguments:
            arguments = json.dumps(arguments, ensure_ascii=False)
        function = {"name": call.name, "arguments": arguments}
        return {"id": id, "type": "function", "function": function}

    def _id(self, call: ToolCall, number: int) -> str:
        if self.ids == "short":
            return short_id(call.id)
        if self.ids == "numbered" and kimi_name(call.id) != call.name:
            return f"functions.{call.name}:{number}"
        return call.id


def short_id(id: str) -> str:
    """Return an id of nine letters and digits: the id itself if it is one already."""
    if len(id) == SHORT_ID and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:SHORT_ID]


def detect_format(
    source: str,
    header: str,
    vocabulary: Collection[str],
    render: Render,
    *,
    parts: bool = False,
) -> TemplateFormat:
    """Return the format of a chat template.

    Args:
        source: of the template, as used for a prompt with tools.
        header: a prompt without tools; it ends in the text before a reply.
        vocabulary: the tokens of the model that are no ordinary text.
        render: renders with the template; raises InputError for what it does not accept.
        parts: see `TemplateFormat`.
    """
    tags = next((tags for tags in TAGS if tags.close in source), None)
    opened = opens(tags, header)
    key = next((key for key in KEYS if _takes(source, key)), "")
    replies = ReplyFormat(reasoning=tags, opened=opened)
    plain = TemplateFormat(replies, reasoning_key=key, parts=parts)
    if "tools" not in source:
        return plain
    in_text = "<tool_call>" in source and "tool_calls" not in source
    every: tuple[Ids, ...] = ("any", "short", "numbered")
    for opened, text_arguments, ids in product((False, True), (False, True), every):
        form = replace(
            plain,
            reply=replace(plain.reply, opened=opened),
            native=True,
            calls_in_text=in_text,
            text_arguments=text_arguments,
            ids=ids,
        )
        for family in (WORDS,) if in_text else candidates(source, vocabulary):
            reasoning = None if family.calls is None else tags
            tried = replace(form, reply=replace(form.reply, family=family, reasoning=reasoning))
            if _reads(tried, render, 1):
                parallel = _reads(tried, render, 2)
                return replace(tried, reply=replace(tried.reply, parallel=parallel))
    return plain


def trial_messages(form: TemplateFormat, count: int) -> list[Message]:
    """Return a conversation in which a reply makes `count` calls, and all are answered."""
    words = list(MEANINGS)[:count]
    calls = [ToolCall("look_up", {"word": word}, f"call of a trial: {word}") for word in words]
    thought = "It is Greek." if form.reply.opened else ""
    return [
        user("What is that?"),
        assistant("", reasoning=thought, tool_calls=calls),
        *(tool_result(MEANINGS[c.arguments["word"]], id=c.id, name=c.name) for c in calls),
    ]


def _reads(form: TemplateFormat, render: Render, count: int) -> bool:
    """Return whether the format parses `count` calls as they are rendered, and nothing is lost."""
    asked = trial_messages(form, count)
    try:
        before, reply, after = render(asked, [LOOK_UP], form)
    except InputError:
        return False
    if opens(form.reply.reasoning, before) != form.reply.opened:
        return False
    if LOOK_UP.description not in before or any(part.text not in after for part in asked[2:]):
        return False
    found = form.reply.parse(reply)
    same = [(call.name, call.arguments) for call in found.tool_calls]
    wanted = [(call.name, call.arguments) for call in asked[1].tool_calls]
    return same == wanted and not found.text


def opens(tags: Tags | None, prompt: str) -> bool:
    """Return whether a prompt ends in the opening reasoning tag."""
    return tags is not None and prompt.rstrip().endswith(tags.open.rstrip())


def _takes(source: str, key: str) -> bool:
    """Return whether a template reads that key of a message."""
    return re.search(rf"""message(?:\.|\[['"]|\.get\(['"]){key}\b""", source) is not None
