r"""ChatML: messages to tokens and back, piece by piece.

    <|im_start|>{role}\n{content}<|im_end|>\n … <|im_start|>assistant\n

Control tokens are placed as ids; everything else is encoded as plain text. Hence
(1) text that only *looks* like a control token, wherever it comes from, can never become one, and
(2) a reply's tokens stand between fixed neighbours, so that extending a conversation gives exactly
the tokens of rendering it whole (wherever the reply is encoded as the tokenizer would encode it).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Renderer

LONG = 20_000  # characters
START, END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"


class ChatMLRenderer(Renderer):
    """Renders for models trained on ChatML: SmolLM2, Qwen and others.

    A message of role `tool` is told as the user's. No system message is added where a
    conversation has none. Bytes that a vocabulary lacks (SmolLM2: some control characters) vanish.
    """

    def __init__(self, tokenizer: Tokenizer, name: str = "chatml") -> None:
        """Render with `tokenizer`, of which a copy is kept.

        Raises:
            InputError: the tokenizer has no ChatML control tokens.
        """
        self.name = name
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.encode_special_tokens = True  # control tokens in texts are plain text
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
    def from_folder(cls, folder: Path) -> ChatMLRenderer:
        """The renderer of the checkpoint in `folder`.

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
            raise InputError(f"{file} is not a tokenizer that can be read: {error}") from error
        return cls(tokenizer, f"chatml ({folder.name})")

    @property
    def end_tokens(self) -> frozenset[int]:
        return self._end_tokens

    def start(self, messages: Sequence[Message]) -> list[int]:
        return [*self._messages(messages), *self._header]

    def extend(self, history: Sequence[Message], new: Sequence[Message], closed: bool) -> list[int]:
        end = [] if closed else [self._end]
        return [*end, *self._newline, *self._messages(new), *self._header]

    def reply(self, text: str) -> list[int]:
        return [*self._plain(text), self._end]

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [self._piece(token) for token in tokens]

    def vocabulary(self) -> str:
        return self.tokenizer.to_str()

    def _messages(self, messages: Sequence[Message]) -> list[int]:
        tokens: list[int] = []
        for message in messages:
            tokens += self._message(message)
        return tokens

    def _message(self, message: Message) -> list[int]:
        if message.role == "assistant":  # header and reply apart, as they were when it was sampled
            return [*self._header, *self._plain(message.content), self._end, *self._newline]
        role = "user" if message.role == "tool" else message.role
        body = self._plain(f"{role}\n{message.content}")  # in one piece, as models are trained
        return [self._start, *body, self._end, *self._newline]

    def _plain(self, text: str) -> list[int]:
        # Bytes that were no text reach us as lone surrogates, which no tokenizer takes.
        text = text.encode("utf-8", "replace").decode("utf-8")
        if len(text) < LONG:
            return self.tokenizer.encode(text, add_special_tokens=False).ids
        # The same tokens; and unlike `encode`, it lets other threads of Python run meanwhile.
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
    """The byte that each character stands for in byte-level vocabularies (as GPT-2 defined it)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shown]
    alphabet = {chr(byte): byte for byte in shown}
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(hidden)})
    return alphabet


_BYTES = _byte_alphabet()
