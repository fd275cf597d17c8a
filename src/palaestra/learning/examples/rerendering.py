"""Rerendering: what a policy said, after prompts that are worded differently.

The replies stay the recorded tokens; the prompts around them are rendered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message
from palaestra.core.model import Renderer
from palaestra.learning.examples.draft import Draft
from palaestra.learning.rows import Row

Edit = Callable[[Call], Sequence[Message]]
"""What is new in the prompt of a call, in other words; `call.messages` leaves it as it was."""


def rerendered(episode: Episode, policy: str, renderer: Renderer, edit: Edit) -> list[Row]:
    """The rows of an episode whose prompts were edited.

    As with `rows_of`, each reply of `policy` is trained in exactly one row. Where nothing is
    edited and the renderer is the one of the rollout, the rows are those of `rows_of`.

    Raises:
        InputError: an edit leaves nothing of a prompt.
        TemplateBreaksPrefix: the renderer cannot extend the edited conversation.
    """
    rows: list[Row] = []
    done: set[int] = set()
    for branch in episode.graph.branches():
        draft = Draft(episode.key)
        told: list[Message] = []
        closed = True
        for call in branch:
            new = tuple(edit(call))
            if not new:
                raise InputError(
                    f"Nothing is left of the prompt of call {call.index} of episode {episode.key}; "
                    "edit the messages, but leave at least one."
                )
            draft.read(renderer.extend(told, new, closed) if told else renderer.start(new))
            trained = call.policy == policy and call.index not in done
            done.add(call.index)
            draft.say(call, trained=trained)
            closed = bool(call.completion) and call.completion[-1] in renderer.end_tokens
            told += [*new, call.reply]
        row = draft.row()
        if row is not None:
            rows.append(row)
    return rows
