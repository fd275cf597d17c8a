"""Rerendering: a policy's replies after differently worded prompts.

The replies stay the recorded tokens; the prompts around them are rendered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message
from palaestra.core.model import Renderer, is_of
from palaestra.learning.data.examples.draft import Draft
from palaestra.learning.data.rows import Row

Edit = Callable[[Call], Sequence[Message]]
"""Return the new part of a call's prompt, reworded; `call.messages` leaves it unchanged."""


def rerendered(episode: Episode, policy: str, renderer: Renderer, edit: Edit) -> list[Row]:
    """Return the rows of an episode with edited prompts.

    As with `rows_of`, each reply of `policy` is trained in exactly one row. If nothing is
    edited and the renderer is the one of the rollout, the rows are those of `rows_of`.

    Raises:
        InputError: an edit leaves nothing of a prompt.
        TemplateBreaksPrefix: the renderer cannot extend the edited conversation.
    """
    rows: list[Row] = []
    done: set[int] = set()
    for branch in episode.graph.branches():
        draft = Draft(episode.key)
        rendered: list[Message] = []
        last: int | None = None  # token of the reply before
        for call in branch:
            new = tuple(edit(call))
            if not new:
                raise InputError(
                    f"The prompt of call {call.index} of episode {episode.key} is empty after the "
                    "edit; leave at least one of its messages."
                )
            if rendered:
                closed = last is not None and renderer.closes(last, new)
                tokens = renderer.extend(rendered, new, closed, call.tools)
            else:
                tokens = renderer.start(new, call.tools)
            draft.add_context(tokens, renderer.images(new, tokens))
            trained = is_of(call.policy, policy) and call.index not in done
            done.add(call.index)
            draft.add_reply(call, trained=trained)
            last = call.completion[-1] if call.completion else None
            rendered += [*new, call.reply]
        row = draft.row()
        if row is not None:
            rows.append(row)
    return rows
