"""Examples: the prompt shows rows of a file whose task is like the present one.

Source: Su et al. 2025 (Learn-by-interact): synthesised data serve as examples that are retrieved,
as well as to train on. A row is a chat, as `palaestra synthesise` (`rows.jsonl`) and `palaestra
export --format chat` write it. The `k` solved ones whose first message fits the first observation
best, by words (BM25) or by meaning, stand before it: their own lines of it, and then replies and
what followed. A row of the very task is left out, so that a test does not show its own solution.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.base import Memory
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.agents.memory.retrieval import By, retrieval
from palaestra.core.errors import InputError
from palaestra.core.session import Session

HEAD = "\n\nA task like the one below, and how it was solved:\n"
LONGEST = 400  # characters of what followed a reply


@dataclass(frozen=True, slots=True)
class Example:
    """A row: its first observation, and the replies with what followed each of them."""

    first: str
    turns: tuple[tuple[str, str], ...]

    def shown(self, present: str) -> str:
        """Return it as text, without the lines that the present task has, too."""
        known = set(present.splitlines())
        lines = [line for line in self.first.splitlines() if line not in known]
        for reply, seen in self.turns:
            lines += [f"> {reply}", *([seen[:LONGEST]] if seen else [])]
        return "\n".join(lines)


class ExamplesAgent(RememberingAgent):
    """A chat that begins with solved tasks like the present one, from a file of rows."""

    name = "examples"

    def __init__(
        self, *, rows: str, k: PositiveInt = 2, by: By = "words", history: Keep = None
    ) -> None:
        """Show `k` rows of the file, retrieved by `by`, and all exchanges or the last `history`.

        Raises:
            InputError: the file cannot be read, or has no solved row.
            MissingPackage: the embeddings asked for are not installed.
        """
        self.k, self.history, self.best = k, history, retrieval(by)
        self.examples = read_examples(Path(rows).expanduser())

    def memory(self, session: Session) -> Memory:
        assert session.observation is not None
        first = session.observation.text
        if session.first_recorded_call is not None:  # the same prompt as then
            instructions = session.first_recorded_call.messages[0].text
            return History(instructions, first, self.history)
        others = [one for one in self.examples if one.first != first]
        found = self.best(first, [one.first for one in others], self.k)
        cases = [HEAD + others[index].shown(first) for index in reversed(found)]  # the best last
        return History(self.instructions(session) + "".join(cases), first, self.history)


def read_examples(file: Path) -> list[Example]:
    """Return the solved rows of a file of chats; raises InputError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"rows={file} cannot be read ({error}); name a file of chats.") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
            example = _example(row["messages"])
            solved = row.get("solved", True)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):
            raise InputError(
                f"rows={file}, line {number} is no chat; pass what `palaestra synthesise` wrote as "
                "rows.jsonl, or `palaestra export --format chat`."
            ) from None
        found += [example] if solved and example.turns else []
    if not found:
        raise InputError(f"rows={file} has no solved row; name another file.")
    return found


def _example(messages: Sequence[dict[str, Any]]) -> Example:
    """Return a chat without its system message."""
    said = [(str(one["role"]), _text(one)) for one in messages if one["role"] != "system"]
    replies = [at for at, (role, _) in enumerate(said) if role == "assistant"]
    ends = [*replies[1:], len(said)]
    turns = [
        (said[at][1], "\n".join(text for _, text in said[at + 1 : end]))
        for at, end in zip(replies, ends, strict=True)
    ]
    return Example("\n".join(text for _, text in said[: replies[0]]), tuple(turns))


def _text(message: dict[str, Any]) -> str:
    """Return a message's text; of a call of a tool, the call."""
    calls = [one["function"] for one in message.get("tool_calls") or ()]
    return "\n".join(
        [
            *([str(message["content"])] if message.get("content") else []),
            *(f"{one['name']}({one['arguments']})" for one in calls),
        ]
    )
