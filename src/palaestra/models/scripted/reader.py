"""The reader: a simulated member of a team, of known competence, that really reads its prompt.

It is no language model, and plays only where the right answer is known (`answer`). What it says is
right with a stated probability, and depends on what it finds in its prompt: proposals to review or
to vote on, and reviews of its own proposals. So what a team of readers must reach is a formula,
against which protocols can be checked (`scripts/teams_study.py`).

Asked for an action, it gives the right one with probability `right`, else another one; its last
proposal again if reviews accepted it, and a new one if they did not. Asked to say something, it
calls the last proposal in its prompt wrong with probability `recall` if it is wrong, `false` if it
is right, and accepts it otherwise. In a vote and in ratings it judges each proposal rightly with
probability `honesty`; it prefers those that it thinks right, and rates them 5, the others 0.

As a worker of an orchestrator it gives the right action with probability `outside` in place of
`right` if its work shares no word with its skills. As the orchestrator it writes ledgers from what
it reads (`reading_ledgers.py`), and calls a turn stalled with probability `recall` if the
environment showed the same twice in a row, else with `false`. As the supervisor it halts what
repeats with probability `recall`, or `false` where that is the right action.

Where tasks are routed, it forwards, splits and joins them (`routing_reader.py`), and gives the
right action with probability `outside` if the task shares no word with its skills.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod

from palaestra.core.agent import Agent
from palaestra.core.bm25 import words
from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.core.message import Message
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.core.routing_words import TOGETHER
from palaestra.core.team_words import (
    ACCEPT,
    ASKED,
    DONE,
    GO_ON,
    HALT,
    PASS,
    instructed,
    proposed,
    skills_in,
)
from palaestra.models.scripted import routing_reader
from palaestra.models.scripted.reading_ledgers import read, write_plan, write_turn
from palaestra.models.scripted.scripted_model import given_generation

NOTHING = "nothing to report"
WRONG = "wrong"  # the beginning of a review against a proposal
TRIES = 100  # samples of an action that is not the right one


@dataclass(frozen=True, slots=True)
class Competence:
    """What a reader can do; all numbers are probabilities.

    Raises:
        InputError: a number is none.
    """

    right: float = 1.0  # of the right action
    recall: float = 1.0  # that it calls a wrong proposal wrong
    false: float = 0.0  # that it calls a right proposal wrong
    honesty: float = 1.0  # that its vote or rating judges a proposal rightly
    outside: float | None = None  # of the right action for work outside its skills; unset: `right`

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"The reader's {name}={value} is no probability; give 0 to 1.")


class ReaderModel(Model):
    """A member of known competence; `for_environment` binds it to a session's own."""

    name = "reader"
    reads_environment = True

    def __init__(
        self,
        agent: Agent,
        renderer: Renderer | None = None,
        *,
        competence: Competence = Competence(),
        environment: AsyncEnvironment | None = None,
    ) -> None:
        """Bind no environment yet."""
        self.agent, self.renderer, self.environment = agent, renderer, environment
        self.competence = competence

    def for_environment(self, environment: AsyncEnvironment) -> ReaderModel:
        return ReaderModel(
            self.agent, self.renderer, competence=self.competence, environment=environment
        )

    def for_agent(self, agent: Agent) -> ReaderModel:
        return ReaderModel(
            agent, self.renderer, competence=self.competence, environment=self.environment
        )

    async def generate(self, prompt: Prompt) -> Generation:
        """Return the reply to the last line of the prompt; see the table above.

        Raises:
            InputError: the model is not bound to an environment.
            CapabilityMissing: the environment does not declare `answer`.
            EnvironmentFault: the environment samples no action but the right one.
        """
        if self.environment is None:
            raise InputError(
                "The reader has no environment to know of; bind it with `for_environment`."
            )
        rng = random.Random(prompt.seed)
        lines = [line for message in prompt.messages for line in message.text.splitlines()]
        asked = lines[-1] if lines else ""
        right = (await self.environment.answer()).text
        if asked in (ASKED["talk"], ASKED["report"]):
            reply = self._review(lines, right, rng)
            if reply == PASS and asked == ASKED["report"]:
                reply = NOTHING  # a worker that passes is out
        elif asked in (ASKED["majority"], ASKED["approval"], ASKED["ranked"]):
            reply = self._vote(prompt.messages, right, asked, rng)
        elif asked == ASKED["rate"]:
            good = self._judged(prompt.messages, right, rng)
            reply = ", ".join("5" if judged else "0" for judged in good.values())
        elif asked == ASKED["moderate"]:
            reply = DONE
        elif asked == ASKED["bid"]:
            reply = PASS
        elif asked == ASKED["plan"]:
            reply = write_plan(read(prompt.messages))
        elif asked == ASKED["ledger"]:
            found = read(prompt.messages)
            reply = write_turn(found, stalled=self._calls(found.stalls, rng))
        elif asked == ASKED["supervise"]:
            reply = HALT if self._calls(not lines[-2].endswith(f": {right}"), rng) else GO_ON
        elif asked == TOGETHER:
            reply = routing_reader.joined(prompt.messages[-1].text)
        else:
            text = "\n".join(lines)
            routed = routing_reader.route(prompt.messages[-1].text, text, asked, rng)
            if routed is None:
                routed = await self._action(self.environment, prompt.messages, right, rng)
            reply = routed
        return given_generation(self.agent.phrase(Action(reply)), prompt, self)

    async def _action(
        self,
        environment: AsyncEnvironment,
        messages: Sequence[Message],
        right: str,
        rng: random.Random,
    ) -> str:
        """Return an action: the last one again, if it was accepted, else a new one."""
        last = _last_reply(messages)
        reviews = [] if last is None else _reviews(messages[-1].text)
        if last is not None and reviews and all(text.startswith(ACCEPT) for text in reviews):
            return last
        part = routing_reader.part_at_hand(messages[-1].text)
        if part is not None:
            right = routing_reader.word_of(part, right)
        if rng.random() < self._right(messages):
            return right
        for _ in range(TRIES):
            try:
                other = (await environment.sample(rng.getrandbits(32))).text
            except CapabilityMissing as error:
                raise EnvironmentFault("sample", "it samples no wrong actions") from error
            if part is not None:
                other = routing_reader.word_of(part, other)
            if other != right:
                return other
        raise EnvironmentFault("sample", f"{TRIES} random actions were all the right one")

    def _right(self, messages: Sequence[Message]) -> float:
        """Return how often it gives the right action for what it is asked now."""
        competence = self.competence
        work = [found for line in messages[-1].text.splitlines() if (found := instructed(line))]
        tasks = work[-1:] or routing_reader.tasks_at_hand(messages)
        if competence.outside is None:
            return competence.right
        skills = set(words(" ".join(skills_in(one.text) for one in messages if one.role == "user")))
        return prod(
            competence.right if skills & set(words(task)) else competence.outside for task in tasks
        )

    def _calls(self, wrong: bool, rng: random.Random) -> bool:
        """Return whether it calls something wrong that is, or is not."""
        return rng.random() < (self.competence.recall if wrong else self.competence.false)

    def _review(self, lines: Sequence[str], right: str, rng: random.Random) -> str:
        """Return a review of the last proposal."""
        found = [one for line in lines if (one := proposed(line)) is not None]
        if not found:
            return PASS
        _, text = found[-1]
        return f"{WRONG}: {text}" if self._calls(text != right, rng) else ACCEPT

    def _judged(
        self, messages: Sequence[Message], right: str, rng: random.Random
    ) -> dict[str, bool]:
        """Return whether it thinks each numbered proposal right, by its number."""
        paper = re.findall(r"^(\d+): (.*)$", messages[-1].text, re.MULTILINE)
        honest = self.competence.honesty
        return {number: (text == right) == (rng.random() < honest) for number, text in paper}

    def _vote(self, messages: Sequence[Message], right: str, asked: str, rng: random.Random) -> str:
        """Return a ballot."""
        judged = self._judged(messages, right, rng)
        good = [number for number, is_good in judged.items() if is_good]
        if asked == ASKED["approval"]:
            return ", ".join(good) or "none"
        rest = [number for number in judged if number not in good]
        rng.shuffle(rest)
        ranked = [*good, *rest]
        return ranked[0] if asked == ASKED["majority"] else " > ".join(ranked)


def _last_reply(messages: Sequence[Message]) -> str | None:
    """Return the last reply in a conversation."""
    replies = [message.text for message in messages if message.role == "assistant"]
    return replies[-1] if replies else None


def _reviews(text: str) -> list[str]:
    """Return what reviewers say in a text."""
    said = [line.partition(": ")[2] for line in text.splitlines()]
    return [line for line in said if line.startswith((ACCEPT, WRONG))]
