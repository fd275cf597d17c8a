"""A colleague as a finite-state program: what they know, what they agree to, what only they may do.

It is the program of the desks' users (`desk/user.py`) with other rules. A message of somebody who
asks is read by patterns, in this order:

- It asks for something that only the colleague may do: they do it, one thing at a time, once.
- It asks whether to do something that they have an opinion of: they say yes or no.
- It asks for facts: the colleague says who else knows one, or what is missing for one that not
  everybody is told (`Fact.proof`, `Fact.ticket`), or states them.
- Anything else: they have nothing to say about that.

What was said before is the state: a proof that was once given counts from then on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from palaestra.environments.families.desk.scenario import Gesture, Scenario, Slot
from palaestra.environments.families.desk.user import (
    ASKING,
    PERSONAS,
    Act,
    Intent,
    Memory,
    Program,
    mentions,
)

ALREADY = "already"  # the output of what was done before
STATED = ("The {label} is '{{value}}'.", "I have it here: the {label} is '{{value}}'.")
REFERRED = ("{knows} knows that.", "Please ask {knows}, who has that.")
PROOF = ("First tell me the {proof_label}.", "I need the {proof_label} from you first.")
CONFIDED = (
    "I may tell that only to whoever the ticket '{ticket}' is assigned to.",
    "That is for the assignee of the ticket '{ticket}' alone.",
)
CONFIRMATIONS = ("Yes, go ahead.", "Yes, please do.")
DENIALS = ("No, please leave it as it is.", "No, I do not want that.")
DONE = ("I have done that.", "Done.")
DONE_BEFORE = ("I did that before.", "That is done already.")
FAILED = ("That did not work: {output}",)
NOTHING = ("I can say nothing about that.", "I do not know what you mean.")
ONE = ("I can only do one thing at a time. What comes first?",)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a colleague knows, or of which they know who does."""

    what: str  # such as "door code"
    topic: str  # two words that no other fact of theirs has by chance
    value: str
    knows: str = ""  # the name of a colleague who knows it, where this one does not
    proof: str = ""  # a value that must be named first
    proof_label: str = ""  # what that value is
    ticket: str = ""  # the title of a ticket; only its assignee is told

    @property
    def label(self) -> str:
        return f"{self.what} for the {self.topic}"


@dataclass(frozen=True, slots=True)
class Favour:
    """Something that only this colleague may do, and for which a message may ask."""

    gesture: Gesture
    done: bool  # before


@dataclass(frozen=True, slots=True)
class Part:
    """Who a colleague is, for somebody who asks."""

    id: int  # in `supervisor.person`
    name: str
    facts: tuple[Fact, ...]
    opinions: Mapping[str, bool]  # by what they are about
    favours: tuple[Favour, ...]
    assigned: frozenset[str]  # the tickets of whoever asks
    heard: tuple[str, ...] = ()  # their messages before this one


class Colleague(Program):
    """A colleague who is asked."""

    role: ClassVar[str] = "colleague"

    def __init__(self, part: Part) -> None:
        self.part = part
        self.facts = {fact.label: fact for fact in part.facts}
        known = {label: fact.value for label, fact in self.facts.items() if not fact.knows}
        persona = list(PERSONAS)[part.id % len(PERSONAS)]
        scenario = Scenario(part.id, part.name, persona, known, frozenset(), ())
        gestures = [favour.gesture for favour in part.favours]
        super().__init__(scenario, _slots(part.facts), gestures, part.id)

    def intent(self, memory: Memory, heard: str) -> Intent:
        """Return what to do after a message."""
        calls = self.asked_calls(heard)
        if len(calls) > 1:
            return Intent(Act.ONE)
        if calls:
            done = any(one.done and one.gesture.call == calls[0] for one in self.part.favours)
            return Intent(Act.REPORT, output=ALREADY) if done else Intent(Act.DO, call=calls[0])
        about = [agrees for what, agrees in self.part.opinions.items() if mentions(heard, what)]
        if about and ASKING.search(heard):
            return Intent(Act.CONFIRM if all(about) else Act.DENY)
        slots = self.asked_slots(heard)
        for fact in (self.facts[slot] for slot in slots):
            if fact.knows:
                return Intent(Act.REFER, output=fact.label)
            if not self.entitled(fact, heard):
                return Intent(Act.WITHHOLD, output=fact.label)
        return Intent(Act.ANSWER, slots) if slots else Intent(Act.AGAIN)

    def entitled(self, fact: Fact, heard: str) -> bool:
        """Return whether whoever asks may be told a fact, after this message."""
        if fact.ticket and fact.ticket not in self.part.assigned:
            return False
        messages = " ".join([*self.part.heard, heard])
        return not fact.proof or mentions(messages, fact.proof)

    # ── details ──────────────────────────────────────────────────────────────

    def _ways(self, memory: Memory, intent: Intent, rng: random.Random) -> Sequence[str]:
        fact = self.facts.get(intent.output)
        match intent.act:
            case Act.CONFIRM:
                return CONFIRMATIONS
            case Act.DENY:
                return DENIALS
            case Act.REPORT if intent.output == ALREADY:
                return DONE_BEFORE
            case Act.REPORT:
                return [way.format(output=intent.output) for way in FAILED if intent.output] or DONE
            case Act.REFER if fact is not None:
                return [way.format(knows=fact.knows) for way in REFERRED]
            case Act.WITHHOLD if fact is not None and fact.ticket:
                return [way.format(ticket=fact.ticket) for way in CONFIDED]
            case Act.WITHHOLD if fact is not None:
                return [way.format(proof_label=fact.proof_label) for way in PROOF]
            case Act.ONE:
                return ONE
            case Act.AGAIN:
                return NOTHING
            case _:
                return super()._ways(memory, intent, rng)


def stated(reply: str, label: str) -> str:
    """Return the value of a fact that a reply states in the program's words; empty if none."""
    return reply.partition(f"{label} is '")[2].partition("'.")[0]


def _slots(facts: Sequence[Fact]) -> dict[str, Slot]:
    """Return the facts as what can be asked for; one of several of a topic also by what it is."""
    topics = [fact.topic for fact in facts]
    found = {}
    for fact in facts:
        words = [fact.topic, *([fact.what] if topics.count(fact.topic) > 1 else [])]
        asked = "(?s)" + "".join(rf"(?=.*\b{re.escape(word)}\b)" for word in words)
        label = fact.label
        ways = tuple(way.format(label=label) for way in STATED)
        found[label] = Slot(asked, f"the {label}", ways)
    return found
