"""Journeys: several attempts at one task joined into one, with or without their mistakes.

Source: O1 Replication Journey (Qin et al. 2024): a model that learns from trial, error, reflection
and backtracking learns more than one that learns the shortcut alone. How its authors turn a tree of
attempts into one text is not verified; here attempts are joined at equal environment states. A row
is made of the recorded tokens of all attempts; only the words of reflection, and the message that
answers them, come from the renderer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from palaestra.agents.direct import ANSWER, REFLECTION
from palaestra.core.episode import Episode
from palaestra.core.message import Message, assistant, user
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.draft import Draft
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    grouped,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.data.examples.mistakes import Mistakes, finder
from palaestra.learning.data.examples.replies import Reply, conversation
from palaestra.learning.data.rows import Row
from palaestra.learning.methods.component import Kind, Need, Status, component


class Studied(StrEnum):
    """Which replies of a journey are trained; reflections always are."""

    ALL = "all"  # the mistakes too (journey learning)
    RIGHT = "right"  # all but the mistakes (STeP's mask)
    TAIL = "tail"  # only those of the last attempt (the mask that Agent-R released)


def linearised(
    attempts: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    *,
    reflection: str = REFLECTION,
    answer: str = ANSWER,
    studied: Studied = Studied.ALL,
    mistakes: Mistakes | str = "misunderstood",
) -> Row | None:
    """Join attempts at one task in a row: each up to its first mistake, the last to its end.

    After a mistake and the observation of its result come `reflection` as a reply, `answer` as a
    message to it, and the next attempt from where the environment was in that very state: the last
    attempt from its last visit there, the others from their first. The row belongs to the first
    attempt; its calls are renumbered in the order of the row.

    Args:
        attempts: of one task, the last one solved; environments must declare state keys.
        policy: whose replies are joined.
        renderer: of the policy.
        reflection: the policy's reply when it notices a mistake.
        answer: the message after it. The agent `direct?reflects=yes` gives it to `REFLECTION`.
        studied: which replies are trained.
        mistakes: misunderstood, futile, or a function that returns the mistaken calls.

    Returns:
        The row; None where an attempt has no mistake or ends with it, where the next one was
        never in the state that the mistake led to, or where nothing is left to train.

    Raises:
        InputError: the prompts of `policy` do not only grow.
    """
    mistakes = finder(mistakes)
    draft = Draft(attempts[0].key)
    rendered: list[Message] = []
    number = entry = 0
    parts = [conversation(attempt, policy) for attempt in attempts]
    for position, (attempt, part) in enumerate(zip(attempts, parts, strict=True)):
        last = position == len(attempts) - 1
        wrong = mistakes(attempt, policy)
        stop = len(part) if last else _after_mistake(part, wrong, entry)
        if stop is None:
            return None
        for index in range(entry, stop):
            call = part[index].call
            if position == 0 or index > entry:  # else the attempt before has shown this state
                draft.add_context(call.prompt, call.images)
                rendered += call.messages
            trained = _is_studied(studied, last, call.index in wrong)
            draft.add_reply(call, number=number, trained=trained)
            rendered.append(call.reply)
            number += 1
        if last:
            break
        shown = part[stop]
        visits = _visits(parts[position + 1], shown.state)
        if not visits:
            return None
        draft.add_context(shown.call.prompt, shown.call.images)
        draft.add_new_reply(renderer.reply(reflection), number)
        rendered += [*shown.call.messages, assistant(reflection)]
        draft.add_context(renderer.extend(rendered, [user(answer)], closed=True))
        rendered.append(user(answer))
        number += 1
        entry = visits[-1] if position + 2 == len(attempts) else visits[0]
    return draft.row()


@component(
    Kind.EXAMPLES,
    "journeys",
    source="Qin et al. 2024 (O1 Replication Journey)",
    status=Status.EXPERIMENTAL,
    needs=[Need.ATTEMPT],
)
def journeys(
    episodes: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    *,
    most: int = 2,
    reflection: str = REFLECTION,
    answer: str = ANSWER,
    studied: Studied = Studied.ALL,
    mistakes: Mistakes | str = "misunderstood",
    score: Score | str = "success",
) -> list[Example]:
    """Join, per group, its failures, as far as their states meet, and then its best success.

    Groups without a success, or without a failure that meets it, give none.

    Args:
        most: most failed attempts of a journey; the others as in `linearised`.
        score: chooses the success.
    """
    score = scoring(score)
    found: list[Example] = []
    for group in grouped(usable(episodes, policy)):
        solved = [episode for episode in group if episode.outcome.solved]
        if not solved:
            continue
        joined: list[Episode] = [max(solved, key=score)]
        row: Row | None = None
        for failed in group:
            if failed.outcome.solved or len(joined) > most:
                continue
            longer = linearised(
                [failed, *joined],
                policy,
                renderer,
                reflection=reflection,
                answer=answer,
                studied=studied,
                mistakes=mistakes,
            )
            if longer is not None:
                joined, row = [failed, *joined], longer
        if row is not None:
            found.append(Example(row))
    return found


@component(
    Kind.EXAMPLES,
    "shortcuts",
    source="Qin et al. 2024 (O1 Replication Journey), the baseline of journey learning",
    status=Status.EXPERIMENTAL,
    needs=[Need.ANCHOR],
    when={Need.PROGRESS: reads_progress},
)
def shortcuts(
    episodes: Sequence[Episode],
    policy: str,
    *,
    least: float = 1.0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Take episodes that ended well, without the detours in them.

    Where the environment returned to an earlier state, everything in between is left out: the reply
    of the last visit follows the prompt of the first one. Only recorded tokens are used.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are imitated.
        least: lowest score of an episode that is imitated.

    Raises:
        InputError: the prompts of `policy` do not only grow.
    """
    score = scoring(score)
    good = [episode for episode in usable(episodes, policy) if score(episode) >= least]
    rows = [_shortcut(episode, policy) for episode in good]
    return [Example(row) for row in rows if row is not None]


def _shortcut(episode: Episode, policy: str) -> Row | None:
    part = conversation(episode, policy)
    draft = Draft(episode.key)
    index = 0
    while index < len(part):
        draft.add_context(part[index].call.prompt, part[index].call.images)
        if part[index].opens and part[index].state is not None:
            index = _visits(part, part[index].state)[-1]
        call = part[index].call
        draft.add_reply(call)
        index += 1
    return draft.row()


def _after_mistake(part: Sequence[Reply], wrong: Collection[int], entry: int) -> int | None:
    """Return where the attempt continues after its first mistaken action from `entry` on."""
    for index in range(entry, len(part) - 1):
        if part[index].steps and part[index].call.index in wrong:
            return index + 1
    return None


def _visits(part: Sequence[Reply], state: str | None) -> list[int]:
    """Return the first reply of each visit to `state`; none if it is unknown."""
    if state is None:
        return []
    return [i for i, reply in enumerate(part) if reply.opens and reply.state == state]


def _is_studied(studied: Studied, last: bool, wrong: bool) -> bool:
    match studied:
        case Studied.ALL:
            return True
        case Studied.RIGHT:
            return not wrong
        case Studied.TAIL:
            return last
