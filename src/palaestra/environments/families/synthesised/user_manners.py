"""How users put what they ask and tell: manners drawn from a seed, around words that stay exact.

A task's words have values that an agent must use as they are written, so a manner adds sentences
before and after them and changes none.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

GREETINGS = ("", "Hello!", "Good morning.", "Hi there.", "Sorry to bother you again.", "Quick one:")
ASIDES = (
    "",
    "I am on a train, so I keep it short.",
    "It has been a long week here.",
    "I am new to these apps.",
    "My colleague usually does this.",
    "I have tried it myself and gave up.",
)
CLOSINGS = (
    "",
    "Thank you!",
    "There is no hurry.",
    "I need this before noon.",
    "Please be careful with it.",
    "You are a great help.",
)
ANSWERING = ("", "Let me look.", "Sure.", "I have it here.", "That one again?")


@dataclass(frozen=True, slots=True)
class Manner:
    """How one user speaks."""

    greeting: str = ""
    aside: str = ""
    closing: str = ""
    answering: str = ""

    def asks(self, task: str) -> str:
        """Return a task in this user's words."""
        return " ".join(filter(None, (self.greeting, self.aside, task, self.closing)))

    def tells(self, fact: str) -> str:
        """Return the answer to a question; the fact stands in a line of its own."""
        return f"{self.answering}\n{fact}" if self.answering else fact


PLAIN = Manner()


def drawn_manner(mark: str) -> Manner:
    """Draw the manner of a user; equal marks give equal ones."""
    rng = random.Random(f"manner {mark}")
    return Manner(*(rng.choice(words) for words in (GREETINGS, ASIDES, CLOSINGS, ANSWERING)))
