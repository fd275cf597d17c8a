"""Reflexion: before it tries a task again, the agent writes down what went wrong last time.

Source: Shinn et al. 2023. An episode is one attempt; the attempts are the repeats of a task
(`palaestra eval --repeats 4`), run one after the other. After a failed attempt, the next one begins
by asking the role "reflector" for a lesson, so the lesson is recorded in the episode that uses it.
Everything else is read from the finished episodes of the task, so a resumed run builds the same
prompts. The environment decides whether an attempt failed, as in the source. Hence repeats are no
longer independent samples of one policy.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, NamedTuple

from pydantic import Field

from palaestra.agents.numbered_plan import longer
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

ROLE = "reflector"
REFLECT = (
    "You are told how an attempt at a task failed. Say in a few sentences what went wrong and what "
    "to do differently when the same task is tried again."
)
HEAD = "What you learnt from earlier attempts at this very task:"
PLAN_PREFIX = "The way is: "  # of a lesson written by an oracle plan
LONGEST = 6000  # characters of an attempt in the prompt: its end


class Attempt(NamedTuple):
    """One finished attempt."""

    solved: bool
    story: str
    lesson: str | None  # written at its beginning


class ReflexionAgent(Agent):
    """A chat whose instructions end with the lessons of earlier attempts."""

    name = "reflexion"
    roles = (ROLE,)
    in_order = True

    def __init__(self, *, lessons: Annotated[int, Field(ge=1)] = 3) -> None:
        """Show the last `lessons` lessons."""
        self.lessons = lessons
        self._attempts: defaultdict[tuple[str, int], dict[int, Attempt]] = defaultdict(dict)

    def witness(self, episode: Episode) -> None:
        if not episode.outcome.scored or episode.observation is None:
            return
        lesson = next((c.reply.text for c in episode.calls if c.role == ROLE), None)
        key = episode.key
        attempt = Attempt(episode.outcome.solved, _story(episode), lesson)
        self._attempts[key.phase, key.group][key.member] = attempt

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        lessons = await self._lessons(session)
        instructions = "\n".join([session.instructions, *([HEAD, *lessons] if lessons else [])])
        messages = [system(instructions), user(session.observation.text)]
        while not session.over:
            reply = await session.generate(messages)
            transition = await session.act(reply.text.strip(), by=reply)
            messages += [reply.message, user(transition.observation.text)]

    async def _lessons(self, session: Session) -> list[str]:
        """Return the lessons so far, with a new one after a failed attempt."""
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
        """Write the plan down as a lesson; act by a majority vote of the plan and all lessons.

        A lesson votes while the actions so far are those that most lessons name.
        """
        if messages[0].text == REFLECT:
            return PLAN_PREFIX + json.dumps([action.text for action in actions])
        done = [message.text for message in messages if message.role == "assistant"]
        noted = list(zip_longest(*_noted_plans(messages[0].text)))  # by step
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
    """Return the most frequent vote; of equals, the first."""
    return Counter(vote for vote in votes if vote is not None).most_common(1)[0][0]


def _noted_plans(instructions: str) -> list[list[str]]:
    lines = instructions.partition(HEAD)[2].splitlines()
    return [
        json.loads(line.removeprefix(PLAN_PREFIX)) for line in lines if line.startswith(PLAN_PREFIX)
    ]
