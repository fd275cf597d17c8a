"""Any Hugging Face chat template as a renderer, as long as it only appends.

A template is a program over the whole conversation: it may strip earlier thoughts, move the system
message or insert a counter, and so change tokens that were already sampled. Each extension
therefore renders the conversation twice, without and with the new messages. It requires that the
first text is a prefix of the second, and that the reply between them still reads as it was sampled.
It encodes only what follows. A template that breaks this raises an error and is never trained on.

Tools go through the template too: schemas, calls, results and reasoning in the form that it takes
(see `template_format`). If it takes none, they are rendered as text (see `tool_text`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from palaestra.core.errors import InputError, TemplateBreaksPrefix
from palaestra.core.message import Image, ImageSpan, Message, Reasoning, ToolCall, assistant, user
from palaestra.core.model import Renderer, ReplyParser
from palaestra.core.tool import Tool
from palaestra.models.renderers.harmony import CONTINUED
from palaestra.models.renderers.harmony import END as HARMONY_END
from palaestra.models.renderers.model_families import ReplyFormat
from palaestra.models.renderers.reply_parser import without_tags
from palaestra.models.renderers.scanner import PYTHON
from palaestra.models.renderers.template_format import (
    LOOK_UP,
    TemplateFormat,
    detect_format,
    opens,
    trial_messages,
)
from palaestra.models.renderers.tool_text import as_words, schema

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from palaestra.models.local.image_reader import ImageReader

LONGEST_TAG = 16  # tokens
_REMEDY = "Use a template that leaves earlier messages unchanged, or start a new conversation."
_PLAIN = [user("one"), assistant("two"), user("three")]


class Around(NamedTuple):
    """A rendered conversation, cut at its last reply."""

    before: str
    reply: str
    end: str  # the first control token that does not belong to replies; empty: none
    after: str
    closing: str  # what ends the thought that the prompt opened and the template then dropped


class TemplateRenderer(Renderer):
    """A renderer that uses the tokenizer's own Jinja template.

    Control tokens spelt out in a message are broken up with a zero-width space, so that no text
    can end a turn or imitate another role. Where the template writes a placeholder for an image,
    the tokens that the model's processor shows that image by take its place.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        *,
        keep_thoughts: bool = False,
        reader: ImageReader | None = None,
    ) -> None:
        """Render with `tokenizer`, after checking its template.

        Args:
            tokenizer: with a chat template.
            name: for error messages.
            keep_thoughts: continue a conversation after its sampled tokens even where the template
                would drop earlier reasoning.
            reader: of the images, for a model that sees.

        Raises:
            TemplateBreaksPrefix: the template changes earlier tokens even in a plain conversation.
            InputError: the tokenizer has no template, or no control token ends its replies.
        """
        self.name, self.keep_thoughts = name, keep_thoughts
        self._tokenizer, self._reader = tokenizer, reader
        self.sees = reader is not None
        if not tokenizer.chat_template:
            raise InputError(
                f"The tokenizer of '{name}' has no chat template; use an instruction-tuned model."
            )
        control = set(tokenizer.all_special_ids) | {
            id for id, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        if reader is not None:
            control.add(reader.token)
        self._texts = {id: str(tokenizer.convert_ids_to_tokens(id) or "") for id in control}
        self._control_texts = sorted(filter(None, self._texts.values()), key=len, reverse=True)
        self._format = TemplateFormat(ReplyFormat(), parts=self.sees)
        self._control_pattern = re.compile("|".join(map(re.escape, self._control_texts)) or r"(?!)")
        self._end = self._find_end()
        self._check_appends()
        added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
        self._format = detect_format(
            self.source, self._render([user("?")]), added, self._trial, parts=self.sees
        )
        self.native_tools = self._format.native
        self._call_end = self._find_call_end() if self.native_tools else self._end
        self._sampled_end = self._format.reply.family.end or self._end
        marks = self._format.reply.marks
        self._wordless = {id for id, text in self._texts.items() if text not in marks}
        self.drops_thoughts = not keep_thoughts and self._drops_thoughts()

    @classmethod
    def from_folder(cls, folder: Path, *, keep_thoughts: bool = False) -> TemplateRenderer:
        """Return the renderer of the checkpoint in `folder`; raise like the constructor."""
        from palaestra.models.renderers.deferred_tokenizer import read_tokenizer

        return cls(read_tokenizer(folder), folder.name, keep_thoughts=keep_thoughts)

    @classmethod
    def seeing(cls, folder: Path, *, keep_thoughts: bool = False) -> TemplateRenderer:
        """Return the renderer of the checkpoint in `folder`, whose model sees.

        Raises:
            InputError: see the constructor and `image_reader`.
        """
        from palaestra.models.local.image_reader import image_reader

        reader = image_reader(folder)
        tokenizer = reader.processor.tokenizer
        if reader.processor.chat_template:
            tokenizer.chat_template = reader.processor.chat_template
        return cls(tokenizer, folder.name, keep_thoughts=keep_thoughts, reader=reader)

    def save(self, folder: Path) -> None:
        """Write the tokenizer and its template as transformers reads them, and its processor."""
        if self._reader is not None:
            self._reader.save(folder)
        else:
            self._tokenizer.save_pretrained(folder)

    @property
    def source(self) -> str:
        """The template's source, as used for prompts with tools."""
        return str(self._tokenizer.get_chat_template(None, [{}]))

    @property
    def end_tokens(self) -> frozenset[int]:
        """What ends a reply: its usual end, the one after calls, and the end of text."""
        texts = (self._sampled_end, self._call_end)
        ends = {id for id, text in self._texts.items() if text in texts}
        eos = self._tokenizer.eos_token_id
        return frozenset(ends | ({eos} if isinstance(eos, int) else set()))

    @property
    def thought_end(self) -> list[int]:
        text = self._format.reply.thought_end
        return self._encode(text) if text else []

    def closes(self, token: int, new: Sequence[Message]) -> bool:
        """Return whether a sampled token ends a reply so that `new` can follow it.

        Where the end of a reply begins the next message (as `<|user|>` does in GLM), it has to be
        the beginning of that message.
        """
        if token not in self.end_tokens:
            return False
        family = self._format.reply.family
        if not family.role_ends:
            return True
        results = bool(new) and new[0].role == "tool"
        return self._texts.get(token) == (self._call_end if results else self._end)

    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        return self._encode(self._with_images(self._render(messages, tools), messages))

    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        closed: bool,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        if self.keep_thoughts:
            history = [_without_thoughts(message) for message in history]
        around = self._around(history, new, tools, strict=not self.keep_thoughts)
        if not around.end or not self._says(around, history[-1]):
            raise self._breaks(len(history))
        ends_otherwise = around.end == self._end != self._sampled_end
        if ends_otherwise and closed and not self.keep_thoughts:
            raise self._breaks(len(history))
        tail = self._encode(around.end + self._with_images(around.after, new))
        if self._texts.get(tail[0]) != around.end:
            raise self._breaks(len(history))
        return tail[1:] if closed else tail

    def images(self, messages: Sequence[Message], tokens: Sequence[int]) -> tuple[ImageSpan, ...]:
        if self._reader is None:
            return ()
        return self._reader.spans(_images(messages), tokens)

    def reply(self, reply: str | Message) -> list[int]:
        message = assistant(reply) if isinstance(reply, str) else reply
        if message.tool_calls or message.reasoning or self._format.reply.family.calls is None:
            around = self._around([user("?"), message], (), strict=False)
            end = self._call_end if message.tool_calls else self._sampled_end
            return self._encode(around.closing + around.reply + end)
        tokens = self._tokenizer.encode(
            message.text, add_special_tokens=False, split_special_tokens=True
        )
        return [*tokens, *self._encode(self._sampled_end)]

    def text(self, tokens: Sequence[int]) -> str:
        words = [token for token in tokens if token not in self._wordless]
        return str(self._tokenizer.decode(words, clean_up_tokenization_spaces=False))

    def parser(self, calls: bool = True, prompt: Sequence[int] | None = None) -> ReplyParser:
        form = self._format.reply
        if prompt is not None and form.reasoning is not None:
            form = replace(form, opened=opens(form.reasoning, self.text(prompt[-LONGEST_TAG:])))
        return form.parser(calls)

    def token_strings(self, tokens: Sequence[int]) -> list[str]:
        return [
            str(self._tokenizer.decode([token], clean_up_tokenization_spaces=False))
            for token in tokens
        ]

    def vocabulary(self) -> str | None:
        fast = getattr(self._tokenizer, "backend_tokenizer", None)  # slow ones have none
        return None if fast is None else str(fast.to_str())

    def _around(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Tool] = (),
        form: TemplateFormat | None = None,
        *,
        strict: bool = True,
    ) -> Around:
        """Render a conversation, and find the last reply of `history` in it.

        If not `strict`, the template may have dropped the thought that the prompt had opened.
        """
        form = form or self._format
        before = self._render(history[:-1], tools, form=form)
        whole = self._render([*history, *new], tools, header=bool(new), form=form)
        closing, tags = "", form.reply.reasoning
        if not (strict or whole.startswith(before)) and opens(tags, before):
            assert tags is not None
            before, closing = without_tags(before), f"{tags.close}\n\n"
        if not whole.startswith(before):
            raise self._breaks(len(history))
        text, marks = whole[len(before) :], form.reply.marks
        for found in self._control_pattern.finditer(text):
            ends_harmony = found[0] == HARMONY_END and not text.startswith(CONTINUED, found.end())
            if found[0] not in marks or ends_harmony:
                rest = text[: found.start()], found[0], text[found.end() :]
                return Around(before, *rest, closing)
        return Around(before, text, "", "", closing)

    def _trial(
        self, messages: Sequence[Message], tools: Sequence[Tool], form: TemplateFormat
    ) -> tuple[str, str, str]:
        """Render a conversation of at least three messages in a format under trial."""
        around = self._around(messages[:2], messages[2:], tools, form)
        if not around.end:
            raise self._breaks(2)
        return around.before, around.reply, around.after

    def _says(self, around: Around, reply: Message) -> bool:
        """Return whether the template keeps a reply's text, reasoning and calls."""
        words, form = self._defuse(reply.text).strip(), self._format.reply
        if not reply.tool_calls and not reply.reasoning and around.reply.strip() == words:
            return True  # many templates trim outer blanks; the sampled tokens keep them
        parsed = replace(form, opened=opens(form.reasoning, around.before)).parse(around.reply)
        thought = self._defuse(reply.reasoning).strip() if self._format.reply.thought_end else ""
        if (parsed.text.strip(), parsed.reasoning) != (words, thought):
            return False
        calls = [self._defused(_plain(call)) for call in reply.tool_calls]
        return calls == [_plain(call) for call in parsed.tool_calls]

    def _check_appends(self) -> None:
        """Raise TemplateBreaksPrefix unless the prompt of a reply stays as it is when that is made.

        Only reasoning tags may differ: they belong to the prompt or to the reply.
        """
        if not self._render(_PLAIN).startswith(without_tags(self._render(_PLAIN[:1]))):
            raise self._breaks(2)

    def _find_end(self) -> str:
        """Return the control token that the template writes after a reply."""
        after = self._render(_PLAIN).rpartition("two")[2]
        found = self._control_pattern.search(after)
        if found is not None and not after[: found.start()].strip():
            return found[0]
        raise InputError(
            f"The chat template '{self.name}' ends replies with no control token, so the end "
            "of a reply cannot be detected; use a template that writes one."
        )

    def _find_call_end(self) -> str:
        """Return the control token that the template writes after a reply with a call."""
        messages = trial_messages(self._format, 1)
        return self._around(messages[:2], messages[2:], [LOOK_UP]).end

    def _drops_thoughts(self) -> bool:
        """Return whether the template drops the reasoning of a reply when the user speaks again."""
        if not self._format.reply.thought_end:
            return False
        history = [user("one"), assistant("two", reasoning="three")]
        try:
            return "three" not in self._around(history, [user("four")]).reply
        except TemplateBreaksPrefix:
            return True

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        header: bool = True,
        form: TemplateFormat | None = None,
    ) -> str:
        from jinja2 import TemplateError

        form = form or self._format
        if not form.native:
            messages, tools = as_words(messages, tools), ()
        dicts = [self._defused(part) for part in form.dicts(messages)]
        schemas = [self._defused(schema(tool)) for tool in tools] or None
        try:
            text = self._tokenizer.apply_chat_template(
                dicts,
                tools=schemas,
                xml_tools=schemas,  # SmolLM3's name for them
                tokenize=False,
                add_generation_prompt=header,
            )
        except (
            TemplateError,
            TypeError,
        ) as error:  # TypeError: the template adds text to a mapping
            roles = ", ".join(message.role for message in messages)
            raise InputError(
                f"The chat template '{self.name}' does not accept a conversation of the roles "
                f"{roles}: {error}"
            ) from error
        return str(text)

    def _with_images(self, text: str, messages: Sequence[Message]) -> str:
        """Return a rendered text with what each image is shown by in place of its placeholder."""
        if self._reader is None:
            return text
        first, *others = text.split(self._reader.placeholder)
        images = _images(messages)
        if len(others) != len(images):
            raise InputError(
                f"The chat template '{self.name}' shows {len(others)} of the {len(images)} images "
                "in messages of these roles; leave the images out, or use another template."
            )
        shown = (self._reader.prepare(image).text for image in images)
        return first + "".join(f"{image}{rest}" for image, rest in zip(shown, others, strict=True))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _defused(self, value: Any) -> Any:
        """Return a JSON value with all its texts defused."""
        match value:
            case str():
                return self._defuse(value)
            case Mapping():
                return {
                    self._defuse(str(key)): self._defused(inner) for key, inner in value.items()
                }
            case list() | tuple():
                return [self._defused(inner) for inner in value]
        return value

    def _defuse(self, text: str) -> str:
        # Bytes that were not text arrive as lone surrogates, which no tokenizer accepts.
        text = text.encode("utf-8", "replace").decode("utf-8")
        for control in self._control_texts:
            text = text.replace(control, f"{control[0]}\u200b{control[1:]}")
        return text

    def _breaks(self, turn: int) -> TemplateBreaksPrefix:
        return TemplateBreaksPrefix(self.name, turn, _REMEDY)


def _images(messages: Sequence[Message]) -> list[Image]:
    """Return the images of messages, in order."""
    return [image for message in messages for image in message.images]


def _without_thoughts(message: Message) -> Message:
    return Message(
        message.role, tuple(part for part in message.parts if not isinstance(part, Reasoning))
    )


def _plain(call: ToolCall) -> dict[str, str]:
    """Return name and arguments as texts: some templates write `2` and `"2"` the same way."""
    return {"": call.name} | {key: _text(value) for key, value in call.arguments.items()}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return PYTHON.get(value, value)
    return json.dumps(value, ensure_ascii=False)
