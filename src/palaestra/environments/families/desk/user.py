"""A user as a finite-state program over slots.

The program reads a message of the agent by patterns and decides what its part is to do now
(`Intent`): answer for the slots that are asked for, act on a phone, confirm what it wants, deny
what it does not want, change its mind, come up with the next wish, ask again, hang up. How that is
worded is drawn from the seed. What it has said so far is its whole state (`Memory`).

Rules, in this order, for a message of the agent:

- It names tools of the user, or what they do: the user does that and reports what it shows; of
  several, one at a time.
- It asks for slots: the user states those that they know, and says which they do not remember.
- It asks whether to go ahead: the first time, a wish that changes is changed. If the message names
  another order, booking or number than the user's own, they say no, else yes.
- It refuses, or says that something is done: the user comes up with the next wish, or hangs up.
- Anything else: the user says again what they want; after `PATIENCE` of these they hang up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.desk.scenario import (
    IDENTIFIER,
    Gesture,
    Scenario,
    Slot,
    Wish,
)

CONFIRMS = "user.confirms"  # the moment in which the user says yes to what is going to be done
PATIENCE = 4  # messages that lead nowhere, until the user hangs up
ASKING = re.compile(
    r"\b(confirm|shall i|should i|go ahead|may i|do you agree|would you like me to|proceed)\b"
    r"|\bis (that|this) (right|correct|okay|ok)\b",
    re.IGNORECASE,
)
REFUSING = re.compile(
    r"\b(cannot|can't|can not|unable|not able|not possible|not allowed|not permitted|declined?)\b",
    re.IGNORECASE,
)
CLOSING = re.compile(
    r"\b(anything else|goodbye|all set|taken care of|(nice|good) day)\b"
    r"|\b(is|are|been|was|have|i've) (now |successfully |just )*(done|completed|resolved|changed"
    r"|sent|cancell?ed|returned|exchanged|refunded|added|booked|updated|extended|credited|lifted"
    r"|processed)\b",
    re.IGNORECASE,
)
YES = re.compile(r"\b(yes|yeah|yep|sure|please do|go ahead|correct|i confirm)\b", re.IGNORECASE)
NO = re.compile(r"\b(no|not|don't|do not|wait|actually)\b", re.IGNORECASE)
PERSONAS: Mapping[str, tuple[str, str]] = {
    "plain": ("{}", "You say what is needed."),
    "polite": ("{} Thank you.", "You are polite."),
    "chatty": ("Well. {} It has been a long week here.", "You like to talk."),
    "hurried": ("{} Be quick.", "You are in a hurry."),
}
"""How each persona puts what it says, and how it is told of itself."""

CONFIRMATIONS = ("Yes, go ahead.", "Yes.", "Yes, please do.", "Sure, that is what I want: yes.")
DENIALS = ("No, that is not mine.", "No. That is not what I asked for.")
ONE_AT_A_TIME = ("I can only do one thing at a time. What comes first?",)
GOODBYES = ("That is all. Goodbye.", "Nothing else, goodbye.", "OK. Bye.")
FORGOTTEN = ("I do not remember my {slot}.", "My {slot}? I do not have it here.")
REPORTS = ("I did that. It shows: {output}", "Done. My phone says: {output}")
AGAIN = ("As I said: {wish}", "I do not follow. {wish}")


class Act(StrEnum):
    """What a user does in a turn."""

    OPEN = "open"  # say the first wish
    ANSWER = "answer"  # state slots
    CONFIRM = "confirm"  # say yes
    DENY = "deny"  # say no
    CHANGE = "change"  # want something else
    NEXT = "next"  # come up with the next wish
    DO = "do"  # use a tool
    REPORT = "report"  # say what a tool has shown
    ONE = "one"  # ask for one thing at a time
    AGAIN = "again"  # say again what they want; of a colleague: have nothing to say about that
    WITHHOLD = "withhold"  # of a colleague: not tell somebody who is not entitled
    REFER = "refer"  # of a colleague: say who knows
    STOP = "stop"  # hang up


@dataclass(frozen=True, slots=True)
class Intent:
    """What the user's part is to do now."""

    act: Act
    slots: tuple[str, ...] = ()  # that were asked for
    call: Call | None = None  # that was asked for
    output: str = ""  # of the tool that was used


@dataclass(frozen=True, slots=True)
class Memory:
    """What the user has said so far, as far as it matters."""

    wish: int = 0  # the number of the one that is talked about
    changed: bool = False  # whether the change of mind was said
    told: tuple[str, ...] = ()  # slots that were stated
    patience: int = PATIENCE


class Program:
    """The user of a scenario."""

    role: ClassVar[str] = "user"  # what an audit calls whoever plays the part

    def __init__(
        self, scenario: Scenario, slots: Mapping[str, Slot], gestures: Sequence[Gesture], seed: int
    ) -> None:
        self.scenario, self.slots, self.gestures, self.seed = scenario, slots, gestures, seed

    def wish(self, memory: Memory) -> Wish:
        """Return the wish that is talked about."""
        if memory.changed and not memory.wish and self.scenario.change is not None:
            return self.scenario.change
        return self.scenario.wishes[memory.wish]

    def intent(self, memory: Memory, heard: str) -> Intent:
        """Return what to do after a message of the agent."""
        if len(calls := self.asked_calls(heard)) > 1:
            return Intent(Act.ONE) if memory.patience > 1 else Intent(Act.STOP)
        if calls:
            return Intent(Act.DO, call=calls[0])
        if slots := self.asked_slots(heard):
            return Intent(Act.ANSWER, slots)
        if ASKING.search(heard):
            if self.scenario.change is not None and not memory.changed and not memory.wish:
                return Intent(Act.CHANGE)
            return Intent(Act.DENY if self._names_another(heard) else Act.CONFIRM)
        if REFUSING.search(heard) or CLOSING.search(heard):
            more = memory.wish + 1 < len(self.scenario.wishes)
            return Intent(Act.NEXT if more else Act.STOP)
        return Intent(Act.AGAIN if memory.patience > 1 else Act.STOP)

    def after(self, memory: Memory, intent: Intent, said: str) -> Memory:
        """Return the memory after a message of the user that did this."""
        stated = {slot for slot, value in self.scenario.known.items() if mentions(said, value)}
        memory = replace(memory, told=tuple(sorted({*memory.told, *stated})))
        match intent.act:
            case Act.CHANGE:
                return replace(memory, changed=True)
            case Act.NEXT:
                return replace(memory, wish=memory.wish + 1)
            case Act.AGAIN | Act.ONE:
                return replace(memory, patience=memory.patience - 1)
            case _:
                return memory

    def words(self, memory: Memory, intent: Intent, turn: int) -> str:
        """Return a message that does this.

        Args:
            memory: what was said before.
            intent: any but `DO`.
            turn: the number of the message, from which its wording is drawn.
        """
        rng = random.Random(f"user {self.seed} {turn}")
        said = rng.choice(self._ways(memory, intent, rng))
        form = PERSONAS[self.scenario.persona][0]
        return form.format(said) if intent.act is not Act.STOP else said

    def asked_slots(self, heard: str) -> tuple[str, ...]:
        """Return the slots that a message asks for; one that states a slot's value does not."""
        return tuple(
            name
            for name, slot in self.slots.items()
            if re.search(slot.asked, heard, re.IGNORECASE)
            and not (slot.form and re.search(slot.form, heard))
        )

    def asked_calls(self, heard: str) -> list[Call]:
        """Return the calls of the user's own tools that a message asks for."""
        found = [one.call for one in self.gestures if re.search(one.asked, heard, re.IGNORECASE)]
        return [one for number, one in enumerate(found) if one not in found[:number]]

    # ── details ──────────────────────────────────────────────────────────────

    def _ways(self, memory: Memory, intent: Intent, rng: random.Random) -> Sequence[str]:
        match intent.act:
            case Act.OPEN:
                name = self.scenario.name
                greeting = rng.choice((f"Hello, this is {name}.", f"Hi, {name} here."))
                return [f"{greeting} {words}" for words in self.wish(memory).words]
            case Act.ANSWER:
                return [" ".join(rng.choice(self._answers(slot)) for slot in intent.slots)]
            case Act.CHANGE:
                assert self.scenario.change is not None
                return [f"Wait, actually: {words}" for words in self.scenario.change.words]
            case Act.NEXT:
                return [f"One more thing. {w}" for w in self.scenario.wishes[memory.wish + 1].words]
            case Act.REPORT:
                return [words.format(output=intent.output) for words in REPORTS]
            case Act.AGAIN:
                wish = rng.choice(self.wish(memory).words)
                return [words.format(wish=wish) for words in AGAIN]
            case Act.CONFIRM:
                return CONFIRMATIONS
            case Act.DENY:
                return DENIALS
            case Act.ONE:
                return ONE_AT_A_TIME
            case _:
                return GOODBYES

    def _answers(self, slot: str) -> Sequence[str]:
        value = self.scenario.known.get(slot)
        if value is None or slot in self.scenario.forgotten:
            return [words.format(slot=slot.replace("_", " ")) for words in FORGOTTEN]
        return [words.format(value=value) for words in self.slots[slot].words]

    def _names_another(self, heard: str) -> bool:
        """Return whether a message names a value of a slot that is not the user's own."""
        for name, slot in self.slots.items():
            own = self.scenario.known.get(name)
            if slot.form and own is not None:
                found = re.findall(slot.form, heard)
                if found and own not in found:
                    return True
        return False


def confirms(heard: str, said: str) -> bool:
    """Return whether a message says yes to the agent's question whether to go ahead."""
    return bool(ASKING.search(heard) and YES.search(said) and not NO.search(said))


def mentions(text: str, value: str) -> bool:
    """Return whether a text has a value as words of its own, in any case."""
    return bool(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE))


def identifiers(text: str) -> set[str]:
    """Return what a text has that nobody knows by chance."""
    return {found.casefold() for found in IDENTIFIER.findall(text)}
