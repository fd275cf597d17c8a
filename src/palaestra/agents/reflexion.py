"""Reflexion: before it tries a task again, the agent says in words what went wrong the last time.

Source: Shinn et al. 2023. An episode is one attempt, so attempts are the repeats of a task
(`palaestra eval --repeats 4`), lived one after the other. A lesson is asked for at the beginning of
the attempt after a failed one, in the role "reflector", and so recorded in the episode that acts by
it. Everything else is read off the finished episodes of the same task: an interrupted run that goes
on tells its attempts what they would have been told. That an attempt failed is the world's word,
as in the source; with it, repeats are no longer independent samples of one policy.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, NamedTuple

from pydantic import Field

from palaestra.agents.plans import longer
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.session import Session

ROLE = "reflector"
REFLECT = (
    "You are told how an attempt at a task failed. Say in a few sentences what went wrong and what "
    "to do differently when the same task is tried again."
)
HEAD = "What you learnt from earlier attempts at this very task:"
WAY = "The way is: "  # how a model that knows it puts a lesson
LONGEST = 6000  # characters of an attempt that are told, its end


class Attempt(NamedTuple):
    """What is remembered of one."""

    solved: bool
    story: str
    lesson: str | None  # that was drawn when it began


class ReflexionAgent(Agent):
    """A chat whose instructions end with the lessons of earlier attempts."""

    name = "reflexion"
    roles = (ROLE,)
    in_order = True

    def __init__(self, *, lessons: Annotated[int, Field(ge=1)] = 3) -> None:
        """Of all lessons, the last so many are told."""
        self.lessons = lessons
        self._attempts: defaultdict[tuple[str, int], dict[int, Attempt]] = defaultdict(dict)

    def witness(self, episode: Episode) -> None:
        if not episode.outcome.scored or episode.observation is None:
            return
        said = next((c.reply.content for c in episode.calls if c.role == ROLE), None)
        key = episode.key
        attempt = Attempt(episode.outcome.solved, _story(episode), said)
        self._attempts[key.phase, key.group][key.member] = attempt

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        lessons = await self._learnt(session)
        told = "\n".join([session.instructions, *([HEAD, *lessons] if lessons else [])])
        messages = [system(told), user(session.observation.text)]
        while not session.over:
            reply = await session.generate(messages)
            transition = await session.act(reply.text.strip(), by=reply)
            messages += [assistant(reply.text), user(transition.observation.text)]

    async def _learnt(self, session: Session) -> list[str]:
        """The lessons so far; after a failed attempt with a new one."""
        key = session.key
        known = self._attempts[key.phase, key.group]
        before = [known[member] for member in sorted(known) if member < key.member]
        lessons = [attempt.lesson for attempt in before if attempt.lesson is not None]
        if before and not before[-1].solved:
            past = "\n".join([HEAD, *lessons, ""]) if lessons else ""
            asked = f"{session.instructions}\n{past}The attempt:\n{before[-1].story[-LONGEST:]}"
            question = [system(REFLECT), user(asked)]
            reply = await session.generate(question, role=ROLE, sampling=longer(session))
            lessons.append(reply.text)
        return [lesson.strip() for lesson in lessons[-self.lessons :]]

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """A model that knows the way notes it down, and goes by most of what it knows and noted.

        Its notes say something as long as it has gone where most of them go.
        """
        if messages[0].content == REFLECT:
            return WAY + json.dumps([action.text for action in actions])
        done = [message.content for message in messages if message.role == "assistant"]
        noted = list(zip_longest(*_ways(messages[0].content)))  # what the ways say, step by step
        votes = [actions[0].text]
        if len(noted) > len(done) and done == [_most(step) for step in noted[: len(done)]]:
            votes += [step for step in noted[len(done)] if step is not None]
        return _most(votes)


def _story(episode: Episode) -> str:
    assert episode.observation is not None
    lines = [episode.observation.text]
    lines += [f"> {s.action.text}\n{s.transition.observation.text}" for s in episode.steps]
    return "\n".join([*lines, f"It ended in {episode.outcome.status}."])


def _most(votes: Sequence[str | None]) -> str:
    """The first of those that most agree on."""
    return Counter(vote for vote in votes if vote is not None).most_common(1)[0][0]


def _ways(told: str) -> list[list[str]]:
    lines = told.partition(HEAD)[2].splitlines()
    return [json.loads(line.removeprefix(WAY)) for line in lines if line.startswith(WAY)]
