"""Any Hugging Face chat template as a renderer, as long as it only ever appends.

A template is a program over the whole conversation: it may strip earlier thoughts, move the system
message or insert a counter, and so change tokens that were sampled already. Each extension
therefore renders the conversation twice, without and with the new messages, requires the first
text to begin the second, and encodes only what follows. Whatever breaks this is named, never
trained on.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError, TemplateBreaksPrefix
from palaestra.core.message import Message, assistant, user
from palaestra.core.model import Renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_REMEDY = "Use a template that leaves earlier messages as they were, or start a new conversation."


class TemplateRenderer(Renderer):
    """Renders with the tokenizer's own Jinja template.

    Control tokens spelt out in a message are broken up with a zero-width space, so that no text
    can end a turn or speak in another role.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
        """Render with `tokenizer`, after a trial of its template.

        Raises:
            TemplateBreaksPrefix: the template changes earlier tokens even of a plain conversation.
            InputError: the tokenizer has no template, or no control token ends its replies.
        """
        self.name = name
        self._tokenizer = tokenizer
        if not tokenizer.chat_template:
            raise InputError(
                f"The tokenizer of '{name}' has no chat template; use an instruction-tuned model."
            )
        self._control = set(tokenizer.all_special_ids) | {
            id for id, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        self._control_texts = sorted(
            (str(text) for text in tokenizer.convert_ids_to_tokens(sorted(self._control)) if text),
            key=len,
            reverse=True,
        )
        self._end = self._find_end()
        self.extend([user("one"), assistant("two")], [user("three")], closed=True)

    @classmethod
    def from_folder(cls, folder: Path) -> TemplateRenderer:
        """The renderer of the checkpoint in `folder`; raises like the constructor."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"The folder '{folder}' holds no tokenizer that can be read ({reason}); save it "
                "there with save_pretrained."
            ) from error
        return cls(tokenizer, folder.name)

    @property
    def end_tokens(self) -> frozenset[int]:
        eos = self._tokenizer.eos_token_id
        return frozenset({self._end} | ({eos} if isinstance(eos, int) else set()))

    def start(self, messages: Sequence[Message]) -> list[int]:
        return self._encode(self._render(messages, header=True))

    def extend(self, history: Sequence[Message], new: Sequence[Message], closed: bool) -> list[int]:
        tail = self._encode(self._tail(history, new))
        end = self._end_place(tail, {self._end})
        if end is None:
            raise self._breaks(len(history))
        return tail[end + 1 :] if closed else tail

    def reply(self, text: str) -> list[int]:
        tokens = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return [*tokens, self._end]

    def text(self, tokens: Sequence[int]) -> str:
        words = [token for token in tokens if token not in self._control]
        return str(self._tokenizer.decode(words, clean_up_tokenization_spaces=False))

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [
            str(self._tokenizer.decode([token], clean_up_tokenization_spaces=False))
            for token in tokens
        ]

    def vocabulary(self) -> str | None:
        fast = getattr(self._tokenizer, "backend_tokenizer", None)  # slow ones have none
        return None if fast is None else str(fast.to_str())

    def _tail(self, history: Sequence[Message], new: Sequence[Message]) -> str:
        """What the template writes after the last reply of `history`, once `new` follows."""
        before = self._render(history[:-1], header=True)
        after = self._render([*history, *new], header=True)
        reply = self._defuse(history[-1].content)
        # Many templates trim a reply's outer blanks. The sampled tokens keep them: nothing breaks.
        for form in (reply, reply.strip()):
            if after.startswith(before + form):
                return after[len(before + form) :]
        raise self._breaks(len(history))

    def _find_end(self) -> int:
        """The control token that the template writes after a reply."""
        tail = self._encode(self._tail([user("one"), assistant("two")], [user("three")]))
        place = self._end_place(tail, self._control)
        if place is None:
            raise InputError(
                f"The chat template '{self.name}' ends replies with no control token, so the end "
                "of a reply cannot be told; use a template that writes one."
            )
        return tail[place]

    def _end_place(self, tail: list[int], ends: Set[int]) -> int | None:
        """Where in `tail` the first of `ends` stands: nothing but blanks may come before."""
        for place, token in enumerate(tail):
            if token in ends:
                return place
            if str(self._tokenizer.decode([token])).strip():
                return None
        return None

    def _render(self, messages: Sequence[Message], header: bool) -> str:
        from jinja2 import TemplateError

        plain = [{"role": m.role, "content": self._defuse(m.content)} for m in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                plain, tokenize=False, add_generation_prompt=header
            )
        except TemplateError as error:
            roles = ", ".join(message.role for message in messages)
            raise InputError(
                f"The chat template '{self.name}' does not accept a conversation of the roles "
                f"{roles}: {error}"
            ) from error
        return str(text)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _defuse(self, text: str) -> str:
        # Bytes that were no text reach us as lone surrogates, which no tokenizer takes.
        text = text.encode("utf-8", "replace").decode("utf-8")
        for control in self._control_texts:
            text = text.replace(control, f"{control[0]}\u200b{control[1:]}")
        return text

    def _breaks(self, turn: int) -> TemplateBreaksPrefix:
        return TemplateBreaksPrefix(self.name, turn, _REMEDY)
