"""A running TextWorld game: the story in its Z-machine, and TextWorld's tracker of its state.

The machine returns text. The tracker follows it through the machine's trace of actions ("[taking
the coin - succeeded]") and knows the facts, the score and the remaining solution. The trace also
tells which commands were valid. An invalid command is undone in the machine, so it changes nothing,
not even an open question of the parser. A command that the tracker cannot follow, such as taking
two things at once, is undone too, so machine and tracker always agree.
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

SEED = 1  # of the machine's rng, which these games do not use
TRACE = re.compile(r"\[([^\]]+)\]\n?")
SUCCEEDED = " - succeeded"
DRINKING = ("drinking carried thing", "drinking")  # the only event that TextWorld misnames
INVENTORY = "taking inventory"
CHANGING = frozenset(  # verbs of events that change the game's state
    "going taking removing dropping putting inserting opening closing unlocking locking eating "
    "drinking giving throwing wearing entering exiting getting switching pushing pulling turning "
    "burning tying cutting cooking slicing dicing chopping preparing".split()
)
TITLE = re.compile(r">?\s*-= .* =-(-?\d+/\d+)?$")  # a room's title, or the status line
NOISE = re.compile(r">|\*\*\* The End \*\*\*|Your score has .*|You scored .*|Would you like to .*")
WON, LOST = "*** The End ***", "*** You lost! ***"


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a command."""

    text: str
    understood: bool
    reward: float = 0.0  # points gained
    events: tuple[str, ...] = ()  # the successful actions, such as "taking the coin"


class Machine:
    """One game, which `restart` begins, any number of times."""

    def __init__(self, story: Path) -> None:
        self._game = textworld.Game.load(str(story.with_suffix(".json")))
        self._inform = Inform7Game(self._game)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jericho does not know generated games
            self._frotz = jericho.FrotzEnv(str(story), seed=SEED)

    def restart(self) -> str:
        """Restart the game; return the goal and the first observation."""
        opening, _ = self._frotz.reset()
        self._frotz.step("tw-trace-actions")
        self._tracker = GameProgression(self._game)
        self.won = self.lost = False
        room = opening[opening.index("-= ") :]  # after the banner and the game's own intro
        return f"Goal: {self._game.objective}\n{plain(room)}"

    def do(self, command: str) -> Reply:
        """Execute a command with one action; an invalid command changes nothing."""
        before = self._frotz.get_state()
        raw, *_ = self._frotz.step(command)
        trace = TRACE.findall(raw)
        if not trace:
            self._frotz.set_state(before)
            return Reply(plain(raw), understood=False)
        events = tuple(
            e.removesuffix(SUCCEEDED).replace(*DRINKING)
            for e in trace
            if e.endswith(SUCCEEDED) and not e.startswith("(")  # "(" marks a part of an action
        )
        changes = [e for e in events if e != INVENTORY and e.split()[0] in CHANGING]
        actions = [self._action(event) for event in changes]
        if len(changes) > 1 or None in actions:
            self._frotz.set_state(before)
            text = "One thing at a time." if len(changes) > 1 else "You can't do that."
            return Reply(text, understood=False)
        score = self._tracker.score
        for action in actions:
            self._tracker.update(action)
        self.won = WON in raw
        self.lost = LOST in raw
        return Reply(plain(raw), True, float(self._tracker.score - score), events)

    def _action(self, event: str) -> object | None:
        return self._inform.detect_action(event, self._tracker.valid_actions)

    def facts(self) -> list[str]:
        """Return the true facts, including the player's place, sorted."""
        return sorted(map(str, self._tracker.state.facts))

    @property
    def score(self) -> int:
        return int(self._tracker.score)

    def solution(self) -> list[str]:
        """Return commands that win from here; [] if the game is over or cannot be won."""
        return list(self._inform.gen_commands_from_actions(self._tracker.winning_policy or ()))

    def admissible(self) -> list[str]:
        """Return the valid commands, sorted."""
        return sorted(set(self._inform.gen_commands_from_actions(self._tracker.valid_actions)))

    def close(self) -> None:
        self._frotz.close()


def plain(text: str) -> str:
    """Return the text without trace, titles, status line, score, prompt and blank lines."""
    lines = []
    for line in TRACE.sub("", text).splitlines():
        line = " ".join(TITLE.sub("", line).split())
        line = "You lost!" if line == LOST else line
        if line.strip("-") and not NOISE.fullmatch(line):
            lines.append(line)
    return "\n".join(lines)
