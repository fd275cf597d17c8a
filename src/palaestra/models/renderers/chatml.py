r"""ChatML: messages to tokens and back, incrementally.

    <|im_start|>{role}\n{content}<|im_end|>\n … <|im_start|>assistant\n

Control tokens are inserted as ids; everything else is encoded as plain text. Hence
(1) text that only *looks* like a control token never becomes one, and
(2) a reply's tokens have fixed neighbours, so that extending a conversation gives exactly the
tokens of rendering it whole (as long as the reply is encoded as the tokenizer would encode it).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Renderer, ReplyParser
from palaestra.core.tool import Tool
from palaestra.models.renderers.chat_template import TemplateRenderer
from palaestra.models.renderers.checkpoint_template import template_of
from palaestra.models.renderers.model_families import ReplyFormat
from palaestra.models.renderers.tool_text import as_words

LONG = 20_000  # characters
START, END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TOOLS, _NO_TOOLS = "{% if tools %}", "{% else %}" + CHATML_TEMPLATE + "{% endif %}"
_WORDS = ReplyFormat()


class ChatMLRenderer(Renderer):
    """A renderer for models trained on ChatML: SmolLM2, Qwen and others.

    Prompts with tools go through the model's own chat template if it has tools; other prompts
    never do. A message of role `tool` is rendered as the user's. No system message is added to a
    conversation without one. Bytes that a vocabulary lacks (SmolLM2: some control characters)
    are dropped.
    """

    def __init__(
        self, tokenizer: Tokenizer, name: str = "chatml", template: TemplateRenderer | None = None
    ) -> None:
        """Render with `tokenizer`.

        Args:
            tokenizer: with the control tokens of ChatML; from now on it reads them as plain text
                where they stand in a text.
            name: for error messages.
            template: renders prompts with tools, if it can, and says how replies are parsed.

        Raises:
            InputError: the tokenizer has no ChatML control tokens.
        """
        self.name = name
        self._template = template
        self._native = template if template is not None and template.native_tools else None
        self.native_tools = self._native is not None
        self.drops_thoughts = self._native is not None and self._native.drops_thoughts
        self.tokenizer = tokenizer
        self.tokenizer.encode_special_tokens = True
        self._start = self._control(START)
        self._end = self._control(END)
        stop = self.tokenizer.token_to_id(END_OF_TEXT)
        self._end_tokens = frozenset(id for id in (self._end, stop) if id is not None)
        self._control_tokens = {
            id for id, token in self.tokenizer.get_added_tokens_decoder().items() if token.special
        }
        self._newline = self._plain("\n")
        self._header = [self._start, *self._plain("assistant\n")]

    @classmethod
    def from_folder(cls, folder: Path, *, keep_thoughts: bool = False) -> ChatMLRenderer:
        """Return the renderer of the checkpoint in `folder`; see `TemplateRenderer` for thoughts.

        Raises:
            InputError: there is no readable `tokenizer.json`, or it has no ChatML control tokens.
        """
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise InputError(
                f"The model folder '{folder}' has no tokenizer.json; save its tokenizer there "
                "with save_pretrained."
            )
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more specific
            raise InputError(f"{file} is not a readable tokenizer: {error}") from error
        template = template_of(folder, tokenizer, keep_thoughts=keep_thoughts)
        return cls(tokenizer, f"chatml ({folder.name})", template)

    @property
    def chat_template(self) -> str:
        """A Jinja template that renders as this renderer does."""
        if self._template is None:
            return CHATML_TEMPLATE
        source = self._template.source
        if source.startswith(_TOOLS) and source.endswith(_NO_TOOLS):
            return source
        return f"{_TOOLS}{source}{_NO_TOOLS}"

    @property
    def end_tokens(self) -> frozenset[int]:
        return self._end_tokens

    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        if self._native is not None and tools:
            return self._native.start(messages, tools)
        return [*self._messages(as_words(messages, tools)), *self._header]

    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        closed: bool,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        if self._native is not None and tools:
            return self._native.extend(history, new, closed, tools)
        end = [] if closed else [self._end]
        return [*end, *self._newline, *self._messages(as_words(new)), *self._header]

    def reply(self, reply: str | Message) -> list[int]:
        if isinstance(reply, Message):
            if self._native is not None and (reply.tool_calls or reply.reasoning):
                return self._native.reply(reply)
            reply = as_words([reply])[0].text
        return [*self._plain(reply), self._end]

    def parser(self, calls: bool = True, prompt: Sequence[int] | None = None) -> ReplyParser:
        if self._template is None:
            return _WORDS.parser(calls)
        return self._template.parser(calls, prompt)

    @property
    def thought_end(self) -> list[int]:
        return [] if self._template is None else self._template.thought_end

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def token_strings(self, tokens: Sequence[int]) -> list[str]:
        return [self._piece(token) for token in tokens]

    def vocabulary(self) -> str:
        return self.tokenizer.to_str()

    def _messages(self, messages: Sequence[Message]) -> list[int]:
        tokens: list[int] = []
        for message in messages:
            tokens += self._message(message)
        return tokens

    def _message(self, message: Message) -> list[int]:
        if message.role == "assistant":  # header and reply separately, as when it was sampled
            return [*self._header, *self._plain(message.text), self._end, *self._newline]
        role = "user" if message.role == "tool" else message.role
        body = self._plain(f"{role}\n{message.text}")  # encoded as one text, as models are trained
        return [self._start, *body, self._end, *self._newline]

    def _plain(self, text: str) -> list[int]:
        # Bytes that were not text arrive as lone surrogates, which no tokenizer accepts.
        text = text.encode("utf-8", "replace").decode("utf-8")
        if len(text) < LONG:
            return self.tokenizer.encode(text, add_special_tokens=False).ids
        # The same tokens; unlike `encode`, it releases the GIL.
        return self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def _piece(self, token: int) -> str:
        text = self.tokenizer.decode([token], skip_special_tokens=False)
        if text and "\ufffd" not in text:
            return text
        raw = self.tokenizer.id_to_token(token)
        if raw is None:
            return f"<{token}>"  # some models have more rows than their tokenizer has tokens
        return "".join(f"<0x{_BYTES[char]:02X}>" if char in _BYTES else char for char in raw)

    def _control(self, token: str) -> int:
        id = self.tokenizer.token_to_id(token)
        if id is None:
            raise InputError(
                f"The tokenizer of '{self.name}' has no token '{token}', so it does not speak "
                "ChatML; render with the model's own chat template instead."
            )
        return id


def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each character in byte-level vocabularies (as GPT-2 defined it)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shown]
    alphabet = {chr(byte): byte for byte in shown}
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(hidden)})
    return alphabet


_BYTES = _byte_alphabet()
