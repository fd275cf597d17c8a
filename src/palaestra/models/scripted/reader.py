"""The reader: a simulated member of a team, of known competence, that really reads its prompt.

It is no language model, and plays only where the right answer is known (`answer`). What it says is
right with a stated probability, and depends on what it finds in its prompt: proposals to review or
to vote on, reviews of its own proposals, and texts that make it more often right. So what a team of
readers must reach is a formula, against which protocols can be checked (`scripts/teams_study.py`,
`scripts/templates_study.py`). Its options are in `competence.py`.

Asked for an action, it gives the right one with probability `right`, else another one; its last
proposal again if reviews accepted it, and a new one if they did not. Asked to say something, it
calls the last proposal in its prompt wrong with probability `recall` if it is wrong, `false` if it
is right, and accepts it otherwise. In a vote and in ratings it judges each proposal rightly with
probability `honesty`; it prefers those that it thinks right, and rates them 5, the others 0.

Of an action in several parts each one is right by itself, and after reviews those that were called
wrong are made anew. Until it decides, a reader with a `part` speaks of that one only: it says it,
or reviews it in the last proposal and gives its own in place of a wrong one; as a moderator, it
names it.

As a worker of an orchestrator it gives the right action with probability `outside` in place of
`right` if its work shares no word with its skills. As the orchestrator it writes ledgers from what
it reads (`reading_ledgers.py`), and calls a turn stalled with probability `recall` if the
environment showed the same twice in a row, else with `false`. As the supervisor it halts what
repeats with probability `recall`, or `false` where that is the right action.

Where tasks are routed, it forwards, splits and joins them (`routing_reader.py`), and where groups
form, it finds members, assigns parts and concludes (`formation_reader.py`); it gives the right
action with probability `outside` if the task shares no word with its skills.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
    WRONG,
    answer_parts,
    instructed,
    proposal,
    replies_in,
    skills_in,
)
from palaestra.models.scripted import formation_reader, routing_reader
from palaestra.models.scripted.competence import Competence, contains
from palaestra.models.scripted.reading_ledgers import read, write_plan, write_turn
from palaestra.models.scripted.scripted_model import given_generation

PERFECT = Competence()
NOTHING = "nothing to report"
TRIES = 100  # samples of an action that is not the right one


class ReaderModel(Model):
    """A member of known competence; `for_environment` binds it to a session's own."""

    name = "reader"
    reads_environment = True

    def __init__(
        self,
        agent: Agent,
        renderer: Renderer | None = None,
        *,
        competence: Competence = PERFECT,
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
            InputError: the model is bound to no environment, or the right answer lacks its part.
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
        if self.competence.part and asked in (ASKED["talk"], ASKED["moderate"]):
            reply = await self._part(self.environment, prompt.messages, asked, right, rng)
        elif asked in (ASKED["talk"], ASKED["report"]):
            reply = self._review(prompt.messages, right, rng)
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
        elif formation_reader.is_asked(asked):
            own = partial(self._answer_to, self.environment, prompt.messages, right, rng)
            reply = await formation_reader.reply(prompt.messages, own)
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
        whole = answer_parts(right)
        one_part = self.competence.part and not messages[-1].text.endswith(ASKED["act"])
        named = all(text.startswith(f"{key}: ") for key, text in whole.items())
        if one_part or (named and len(whole) > 1):
            keys = [self._known(whole)] if one_part else list(whole)
            return await self._parts(environment, messages, keys, whole, reviews, rng)
        chance = self.competence.probability("", {**whole, "": right}, _read(messages))
        if rng.random() < self._within(messages, chance):
            return right

        def word(text: str) -> str:
            return text if part is None else routing_reader.word_of(part, text)

        return word(await _sampled(environment, rng, lambda other: word(other) != right))

    async def _answer_to(
        self,
        environment: AsyncEnvironment,
        messages: Sequence[Message],
        right: str,
        rng: random.Random,
        part: str,
    ) -> str:
        """Return its own answer to a part of the environment's task."""
        word = partial(formation_reader.answer_to, part)
        acts = formation_reader.action_in
        chance = self.competence.probability("", {"": right}, _read(messages))
        if rng.random() < self._does(messages, chance, [part]):
            return word(right)
        other = await _sampled(
            environment, rng, lambda text: word(acts(text) or right) != word(right)
        )
        return word(acts(other) or right)

    async def _parts(
        self,
        environment: AsyncEnvironment,
        messages: Sequence[Message],
        keys: Sequence[str],
        right: Mapping[str, str],
        reviews: Sequence[str],
        rng: random.Random,
    ) -> str:
        """Return these parts of an action; those that it gave before stay, if not called wrong."""
        before = answer_parts(_last_reply(messages) or "")
        flagged = " ".join(text for text in reviews if text.startswith(WRONG))
        again = [key for key in keys if contains(flagged, key)] or (list(keys) if flagged else [])
        chosen = {}
        for key in keys:
            if key in before and key not in again:
                chosen[key] = before[key]
            else:
                chosen[key] = await self._say(environment, key, right, _read(messages), rng)
        return ("\n" if any("\n" in text for text in chosen.values()) else "; ").join(
            chosen.values()
        )

    async def _part(
        self,
        environment: AsyncEnvironment,
        messages: Sequence[Message],
        asked: str,
        right: str,
        rng: random.Random,
    ) -> str:
        """Return what it says of its part: the part, or a review of it in the last proposal."""
        whole, prompt, one = answer_parts(right), _read(messages), self.competence
        key = self._known(whole)
        proposals = [answer_parts(text) for text in _proposals(messages)]
        last = next((found[key] for found in reversed(proposals) if key in found), None)
        if asked == ASKED["moderate"]:  # as it said before
            before = answer_parts(_last_reply(messages) or "")
            return before.get(key) or await self._say(environment, key, whole, prompt, rng)
        if last is None:
            if one.share and rng.random() < one.share:
                mistake = await _mistake(environment, key, whole, messages[-1].text, rng)
                if mistake is not None:
                    return mistake
            return await self._say(environment, key, whole, prompt, rng)
        if not self._calls(last != whole[key], rng):
            return ACCEPT
        return f"{WRONG}: {key}; rather {await self._say(environment, key, whole, prompt, rng)}"

    async def _say(
        self,
        environment: AsyncEnvironment,
        key: str,
        right: Mapping[str, str],
        prompt: str,
        rng: random.Random,
    ) -> str:
        """Return a part as this member thinks it is."""
        if rng.random() < self.competence.probability(key, right, prompt):
            return right[key]
        other = await _sampled(
            environment, rng, lambda text: answer_parts(text).get(key, right[key]) != right[key]
        )
        return answer_parts(other)[key]

    def _known(self, right: Mapping[str, str]) -> str:
        """Return its part; raise InputError if the right answer has no such part."""
        if self.competence.part not in right:
            raise InputError(
                f"The reader's part={self.competence.part} is no part of the right action; "
                f"give one of: {', '.join(right)}."
            )
        return self.competence.part

    def _within(self, messages: Sequence[Message], chance: float) -> float:
        """Return how often it gives the right action: `outside`, for work outside its skills."""
        work = [found for line in messages[-1].text.splitlines() if (found := instructed(line))]
        tasks = work[-1:] or routing_reader.tasks_at_hand(messages)
        return self._does(messages, chance, tasks)

    def _does(self, messages: Sequence[Message], chance: float, tasks: Sequence[str]) -> float:
        """Return how often it does tasks rightly: `outside`, for each outside its skills."""
        outside = self.competence.outside
        if outside is None or not tasks:
            return chance
        skills = set(words(" ".join(skills_in(one.text) for one in messages if one.role == "user")))
        return prod(chance if skills & set(words(task)) else outside for task in tasks)

    def _calls(self, wrong: bool, rng: random.Random) -> bool:
        """Return whether it calls something wrong that is, or is not."""
        return rng.random() < (self.competence.recall if wrong else self.competence.false)

    def _review(self, messages: Sequence[Message], right: str, rng: random.Random) -> str:
        """Return a review of the last proposal."""
        found = _proposals(messages)
        if not found:
            return PASS
        text = found[-1]
        return f"{WRONG}: {text}" if self._calls(text != right, rng) else ACCEPT

    def _judged(
        self, messages: Sequence[Message], right: str, rng: random.Random
    ) -> dict[str, bool]:
        """Return whether it thinks each numbered proposal right, by its number."""
        text = messages[-1].text.rpartition("\n")[0]  # without what is asked
        _, *found = re.split(r"^(\d+): ", text, flags=re.MULTILINE)
        paper = zip(found[::2], (one.removesuffix("\n") for one in found[1::2]), strict=True)
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


def _proposals(messages: Sequence[Message]) -> list[str]:
    """Return the proposals of others in a conversation."""
    read = [message.text for message in messages if message.role != "assistant"]
    return [reply.text for text in read for reply in replies_in(text) if reply.proposes]


def _reviews(text: str) -> list[str]:
    """Return what reviewers say in a text."""
    said = [line.partition(": ")[2] for line in text.splitlines()]
    return [line for line in said if line.startswith((ACCEPT, WRONG))]


def _read(messages: Sequence[Message]) -> str:
    """Return what a member has read, without its own replies and proposals."""
    own = [message.text for message in messages if message.role == "assistant"]
    text = "\n".join(message.text for message in messages if message.role != "assistant")
    named = re.search(r"^You are ([\w.-]+)\.", text, re.MULTILINE)
    name = named[1].rpartition(".")[2] if named else ""
    for reply in own if named else ():
        text = text.replace(f"\n{proposal(name, reply)}\n", "\n")
    return text


async def _sampled(
    environment: AsyncEnvironment, rng: random.Random, wanted: Callable[[str], bool]
) -> str:
    """Return a random action of a kind.

    Raises:
        EnvironmentFault: the environment samples none.
    """
    for _ in range(TRIES):
        try:
            text = (await environment.sample(rng.getrandbits(32))).text
        except CapabilityMissing as error:
            raise EnvironmentFault("sample", "it samples no wrong actions") from error
        if wanted(text):
            return text
    raise EnvironmentFault("sample", f"{TRIES} random actions were all the right one")


async def _mistake(
    environment: AsyncEnvironment,
    key: str,
    right: Mapping[str, str],
    read: str,
    rng: random.Random,
) -> str | None:
    """Return that part of the wrong action of which another part was just read; None: none was.

    A member that looks at somebody's mistake while it says its own part makes the same one.
    """
    if any(contains(read, text) for name, text in right.items() if name != key):
        return None

    def seen(text: str) -> bool:
        return any(contains(read, part) for name, part in answer_parts(text).items() if name != key)

    try:
        return answer_parts(await _sampled(environment, rng, seen)).get(key)
    except EnvironmentFault:
        return None
