"""A running TextWorld game: the story in its Z-machine, and TextWorld's own track of it.

The machine answers in words; the tracker follows it through the machine's trace of
actions ("[taking the coin - succeeded]") and knows facts, score and what is left to do.
The trace also tells which commands were understood. One that was not is undone in the
machine, so that it changes nothing, not even a question left open by the parser. The
same befalls what the tracker cannot follow, such as two things taken at once, so that
machine and tracker always agree.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import jericho
import textworld
from textworld.generator.game import GameProgression
from textworld.generator.inform7 import Inform7Game

SEED = 1  # of the machine's dice, which these games do not throw
TRACE = re.compile(r"\[([^\]]+)\]\n?")
SUCCEEDED = " - succeeded"
DRINKING = ("drinking carried thing", "drinking")  # the one event that TextWorld misnames
INVENTORY = "taking inventory"
CHANGING = frozenset(  # the verbs of events after which the world is another
    "going taking removing dropping putting inserting opening closing unlocking locking eating "
    "drinking giving throwing wearing entering exiting getting switching pushing pulling turning "
    "burning tying cutting cooking slicing dicing chopping preparing".split()
)
TITLE = re.compile(r">?\s*-= .* =-(-?\d+/\d+)?$")  # a room's title, or the status line
NOISE = re.compile(r">|\*\*\* The End \*\*\*|Your score has .*|You scored .*|Would you like to .*")
WON, LOST = "*** The End ***", "*** You lost! ***"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command led to."""

    text: str
    understood: bool
    reward: float = 0.0  # points gained
    events: tuple[str, ...] = ()  # the actions that succeeded, e.g. "taking the coin"


class Machine:
    """One game, begun with `restart`, and again as often as one likes."""

    def __init__(self, story: Path) -> None:
        self._game = textworld.Game.load(str(story.with_suffix(".json")))
        self._inform = Inform7Game(self._game)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # generated games are none that jericho knows
            self._frotz = jericho.FrotzEnv(str(story), seed=SEED)

    def restart(self) -> str:
        """Start over; returns the goal and what the player sees."""
        opening, _ = self._frotz.reset()
        self._frotz.step("tw-trace-actions")
        self._tracker = GameProgression(self._game)
        self.won = self.lost = False
        room = opening[opening.index("-= ") :]  # after the banner and the game's own intro
        return f"Goal: {self._game.objective}\n{plain(room)}"

    def do(self, command: str) -> Reply:
        """Give one command of one action; nothing happens if it is not understood."""
        before = self._frotz.get_state()
        raw, *_ = self._frotz.step(command)
        trace = TRACE.findall(raw)
        if not trace:
            self._frotz.set_state(before)
            return Reply(plain(raw), understood=False)
        events = tuple(
            e.removesuffix(SUCCEEDED).replace(*DRINKING)
            for e in trace
            if e.endswith(SUCCEEDED) and not e.startswith("(")  # a part of another action
        )
        changes = [e for e in events if e != INVENTORY and e.split()[0] in CHANGING]
        actions = [self._action(event) for event in changes]
        if len(changes) > 1 or None in actions:
            self._frotz.set_state(before)
            said = "One thing at a time." if len(changes) > 1 else "You can't do that."
            return Reply(said, understood=False)
        score = self._tracker.score
        for action in actions:
            self._tracker.update(action)
        self.won = WON in raw
        self.lost = LOST in raw
        return Reply(plain(raw), True, float(self._tracker.score - score), events)

    def _action(self, event: str) -> object | None:
        return self._inform.detect_action(event, self._tracker.valid_actions)

    def facts(self) -> list[str]:
        """The facts that hold, the player's place among them, in a fixed order."""
        return sorted(map(str, self._tracker.state.facts))

    @property
    def score(self) -> int:
        return int(self._tracker.score)

    def solution(self) -> list[str]:
        """Commands that win from here; empty when the game is over or cannot be won."""
        return list(self._inform.gen_commands_from_actions(self._tracker.winning_policy or ()))

    def admissible(self) -> list[str]:
        """Commands that do something here."""
        return sorted(set(self._inform.gen_commands_from_actions(self._tracker.valid_actions)))

    def close(self) -> None:
        self._frotz.close()


def plain(text: str) -> str:
    """The game's words without trace, titles, status line, score, prompt and blank lines."""
    lines = []
    for line in TRACE.sub("", text).splitlines():
        line = " ".join(TITLE.sub("", line).split())
        line = "You lost!" if line == LOST else line
        if line.strip("-") and not NOISE.fullmatch(line):
            lines.append(line)
    return "\n".join(lines)
