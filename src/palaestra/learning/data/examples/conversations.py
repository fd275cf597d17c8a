"""Conversations as examples: every reply of a given conversation is learned, or the last one."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.draft import Draft, only
from palaestra.learning.data.examples.example import Example


def conversation_example(conversation: Sequence[Message], renderer: Renderer, key: Key) -> Example:
    """Turn a conversation of general data into an example: every assistant message is trained.

    Args:
        conversation: ends with a reply (an assistant message); none is first or follows another.
        renderer: of the policy that learns from it.
        key: counts as its rollout, e.g. Key("general", 17).

    Raises:
        InputError: the conversation is not of that form.
    """
    draft = Draft(key)
    known: list[Message] = []
    new: list[Message] = []
    number = 0
    for message in conversation:
        if message.role != "assistant":
            new.append(message)
            continue
        if not new:
            raise InputError(f"A reply of conversation {key} answers nothing; join it to another.")
        draft.add_context(renderer.extend(known, new, True) if known else renderer.start(new))
        draft.add_new_reply(renderer.reply(message), number)
        known += [*new, message]
        new = []
        number += 1
    row = draft.row()
    if row is None or new:
        raise InputError(f"Conversation {key} does not end with a reply; leave out what follows.")
    return Example(row)


def last_reply_example(conversation: Sequence[Message], renderer: Renderer, key: Key) -> Example:
    """Turn a conversation into an example of its last reply; raises like `conversation_example`."""
    row = conversation_example(conversation, renderer, key).row
    last = only(row, {max(row.calls)})
    assert last is not None  # the conversation ends with a reply
    return Example(last)
