"""Journeys: several attempts at one task told as one, with or without their mistakes.

Source: O1 Replication Journey (Qin et al. 2024): a model that studies trial, error, reflection and
backtracking learns more than one that studies the shortcut alone. How its authors turn a tree of
attempts into one text is not verified; here attempts meet where the world was in the same state.
A row is made of the recorded tokens of all attempts; only the words of reflection, and the
world's answer to them, come from the renderer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from palaestra.core.episode import Episode
from palaestra.core.message import Message, assistant, user
from palaestra.core.model import Renderer
from palaestra.learning.component import Kind, Need, Status, component
from palaestra.learning.examples.draft import Draft
from palaestra.learning.examples.example import (
    Example,
    Score,
    ScoreName,
    grouped,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.examples.mistakes import Mistakes, finder
from palaestra.learning.examples.replies import Reply, conversation
from palaestra.learning.rows import Row

REFLECTION = "That was a mistake. I take another way from here."
ANSWER = "ok."


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
    """Attempts at one task as one row: each up to its first mistake, the last one to its end.

    After a mistake and what the world then showed come `reflection` as a reply, `answer` as a
    message to it, and the next attempt from where the world was in that very state: the last
    attempt from its last visit there, the others from their first.
    The row belongs to the first attempt; its calls are numbered anew, in the order of the row.

    Args:
        attempts: of one task, the last one solved; environments must declare state keys.
        policy: whose replies are told.
        renderer: of the policy.
        reflection: what the policy should say when it notices a mistake.
        answer: what it is told then; Agent-R's release says "ok." too.
        studied: which replies are trained.
        mistakes: misunderstood, futile, or a function that gives the calls that were mistakes.

    Returns:
        The row; None where an attempt has no mistake or ends with it, where the next one was
        never in the state that the mistake led to, or where nothing is left to train.

    Raises:
        InputError: the prompts of `policy` do not only grow.
    """
    mistakes = finder(mistakes)
    draft = Draft(attempts[0].key)
    told: list[Message] = []
    number = entry = 0
    parts = [conversation(attempt, policy) for attempt in attempts]
    for place, (attempt, part) in enumerate(zip(attempts, parts, strict=True)):
        last = place == len(attempts) - 1
        wrong = mistakes(attempt, policy)
        stop = len(part) if last else _after_mistake(part, wrong, entry)
        if stop is None:
            return None
        for index in range(entry, stop):
            call = part[index].call
            if place == 0 or index > entry:  # else the attempt before has shown this state
                draft.read(call.prompt)
                told += call.messages
            trained = _is_studied(studied, last, call.index in wrong)
            draft.say(call, number=number, trained=trained)
            told.append(call.reply)
            number += 1
        if last:
            break
        shown = part[stop]
        visits = _visits(parts[place + 1], shown.state)
        if not visits:
            return None
        draft.read(shown.call.prompt)
        draft.write(renderer.reply(reflection), number)
        told += [*shown.call.messages, assistant(reflection)]
        draft.read(renderer.extend(told, [user(answer)], closed=True))
        told.append(user(answer))
        number += 1
        entry = visits[-1] if place + 2 == len(attempts) else visits[0]
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
    """One journey per group: its failures, as far as they meet, and then its best success.

    Groups without a success, or of which no failure meets it, give none.

    Args:
        most: failed attempts told at most; the others as in `linearised`.
        score: chooses the success.
    """
    score = scoring(score)
    found: list[Example] = []
    for group in grouped(usable(episodes, policy)):
        solved = [episode for episode in group if episode.outcome.solved]
        if not solved:
            continue
        told: list[Episode] = [max(solved, key=score)]
        row: Row | None = None
        for failed in group:
            if failed.outcome.solved or len(told) > most:
                continue
            longer = linearised(
                [failed, *told],
                policy,
                renderer,
                reflection=reflection,
                answer=answer,
                studied=studied,
                mistakes=mistakes,
            )
            if longer is not None:
                told, row = [failed, *told], longer
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
    """Episodes that ended well, without the detours in them.

    Where the world came back to a state in which it had been, what was done between is left out:
    the reply of the last visit follows the prompt of the first one. Only recorded tokens are used.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are studied.
        least: lowest score of an episode that is studied.

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
        draft.read(part[index].call.prompt)
        if part[index].opens and part[index].state is not None:
            index = _visits(part, part[index].state)[-1]
        call = part[index].call
        draft.say(call)
        index += 1
    return draft.row()


def _after_mistake(part: Sequence[Reply], wrong: Collection[int], entry: int) -> int | None:
    """Where the attempt goes on after its first mistaken action from `entry` on."""
    for index in range(entry, len(part) - 1):
        if part[index].steps and part[index].call.index in wrong:
            return index + 1
    return None


def _visits(part: Sequence[Reply], state: str | None) -> list[int]:
    """The first reply of each visit to `state`; none if it is unknown."""
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
