"""What NetHack shows, in words: the message, the ways that are free, what is seen and where.

Places are told from where the agent stands, in the words of its moves: "a boulder 2 north 3 east".
Messages, descriptions and the names of things are the game's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from nle import nethack

from palaestra.environments.grid.nethack_game import Game
from palaestra.environments.grid.nethack_map import CORRIDORS, STEPS, Cell, Cells, Reader, text

KINDS, OF_A_KIND = 16, 4  # how much is told of what is seen
HUNGER = ("satiated", "", "hungry", "weak", "fainting", "fainted", "starved")
BURDEN = ("", "burdened", "stressed", "strained", "overtaxed", "overloaded")
TROUBLES = {
    nethack.BL_MASK_STONE: "turning to stone",
    nethack.BL_MASK_SLIME: "turning to slime",
    nethack.BL_MASK_STRNGL: "strangled",
    nethack.BL_MASK_FOODPOIS: "food poisoning",
    nethack.BL_MASK_TERMILL: "terminally ill",
    nethack.BL_MASK_BLIND: "blind",
    nethack.BL_MASK_DEAF: "deaf",
    nethack.BL_MASK_STUN: "stunned",
    nethack.BL_MASK_CONF: "confused",
    nethack.BL_MASK_HALLU: "hallucinating",
    nethack.BL_MASK_LEV: "levitating",
    nethack.BL_MASK_FLY: "flying",
    nethack.BL_MASK_RIDE: "riding",
}
PAGE_END = re.compile(r"\(end\)|\(\d+ of \d+\)|--More--")


@dataclass(frozen=True)
class Screen:
    """What the game shows at one moment."""

    message: str
    at: Cell
    cells: Cells
    items: dict[str, str]  # letter -> thing carried
    vitals: tuple[int, ...]  # the package's "blstats"
    asking: bool  # for one key
    typing: bool  # for a line of text
    paging: bool  # for the next page, or a choice on this one
    page: str  # a menu or a long text in front of the map

    @classmethod
    def of(cls, game: Game, reader: Reader) -> Screen:
        """The present one; of those that a reader has read, only the last has its cells."""
        vitals = tuple(game.see("blstats").tolist())
        internal = game.see("internal")
        paging = bool(internal[3])
        return cls(
            message=text(game.see("message")).strip(),
            at=(vitals[nethack.NLE_BL_X], vitals[nethack.NLE_BL_Y]),
            cells=reader.cells(game),
            items=reader.items(game),
            vitals=vitals,
            asking=bool(internal[1]) and not paging,
            typing=bool(internal[2]) and not paging,
            paging=paging,
            page=_page(game.see("tty_chars")) if paging else "",
        )

    @property
    def asks_direction(self) -> bool:
        return self.asking and "direction" in self.message.lower()

    @property
    def menu(self) -> bool:
        """Whether the page is a menu, to choose from."""
        return self.page.endswith(")")

    @property
    def offered(self) -> list[str]:
        """The keys that a question or a page offers."""
        if self.paging:
            return re.findall(r"^(\S) [-+] ", self.page, re.MULTILINE)
        brackets = re.findall(r"\[([^\]]+)\]", self.message) if self.asking else []
        return _spread(brackets[-1].split(" or ")[0]) if brackets else []

    @cached_property
    def inventory(self) -> str:
        things = [f"{letter} - {name}" for letter, name in self.items.items()]
        return f"Inventory: {'; '.join(things) or 'nothing'}."

    def surroundings(self) -> str:
        """The free ways and what is seen, one line each."""
        ways = [f"{way} {steps}" for way in STEPS if (steps := self._free(way))]
        lines = [f"Free steps: {', '.join(ways) or 'none'}."]
        if seen := self._seen():
            lines.append(f"Seen: {'; '.join(seen)}.")
        return "\n".join(lines)

    def condition(self, brief: bool) -> str:
        """Health and what is wrong; unless brief, also how far one has come."""
        see = self.vitals
        parts = [f"HP {see[nethack.NLE_BL_HP]}/{see[nethack.NLE_BL_HPMAX]}"]
        if not brief:
            parts += [
                f"power {see[nethack.NLE_BL_ENE]}/{see[nethack.NLE_BL_ENEMAX]}",
                f"armor class {see[nethack.NLE_BL_AC]}",
                f"experience level {see[nethack.NLE_BL_XP]}",
                f"dungeon level {see[nethack.NLE_BL_DEPTH]}",
                f"gold {see[nethack.NLE_BL_GOLD]}",
                f"turn {see[nethack.NLE_BL_TIME]}",
            ]
        parts += [HUNGER[see[nethack.NLE_BL_HUNGER]], BURDEN[see[nethack.NLE_BL_CAP]]]
        parts += [name for mask, name in TROUBLES.items() if see[nethack.NLE_BL_CONDITION] & mask]
        return f"You: {', '.join(filter(None, parts))}."

    # ── details ──────────────────────────────────────────────────────────────

    def _free(self, way: str) -> int:
        """How many known steps can be taken that way."""
        across, down = STEPS[way]
        walkable, doors = self.cells.walkable, self.cells.doors if across and down else ()
        (x, y), steps = self.at, 0
        while True:
            x, y = x + across, y + down
            if (x, y) not in walkable or (x, y) in doors:
                return steps
            steps += 1

    def _seen(self) -> list[str]:
        (x, y), cells = self.at, self.cells
        worth = [cell for cell in cells.corridors if self._ends_here(cell)]
        worth += cells.things - {self.at}
        places: dict[str, list[Cell]] = {}
        for *_, right, down in sorted(_near(a - x, d - y) for a, d in worth):
            kind = cells[x + right, y + down]
            told_as = "corridor end" if kind in CORRIDORS else kind
            places.setdefault(told_as, []).append((right, down))
        told = [f"{kind} {_where(ways)}" for kind, ways in list(places.items())[:KINDS]]
        if len(places) > KINDS:
            told.append(f"and {len(places) - KINDS} more things further away")
        return told

    def _ends_here(self, cell: Cell) -> bool:
        """Whether this is as much of a corridor as is known; beside the agent it is a free way."""
        (x, y), (a, d) = cell, self.at
        if -2 < x - a < 2 and -2 < y - d < 2:
            return False
        beside = {(x + right, y + down) for right, down in STEPS.values()}
        return len(beside & self.cells.walkable) + (self.at in beside - self.cells.walkable) <= 1


@cache
def _near(right: int, down: int) -> tuple[int, int, int, int]:
    """What sorts the places by how near they are, and the place from here."""
    across, along = abs(right), abs(down)
    return max(across, along), across + along, right, down


def _where(ways: list[Cell]) -> str:
    told = ", ".join(_offset(*way) for way in ways[:OF_A_KIND])
    more = len(ways) - OF_A_KIND
    return told + (f" and {more} more" if more > 0 else "")


@cache
def _offset(right: int, down: int) -> str:
    parts = [f"{abs(down)} {'south' if down > 0 else 'north'}"] if down else []
    parts += [f"{abs(right)} {'east' if right > 0 else 'west'}"] if right else []
    return " ".join(parts)


def _page(terminal: Any) -> str:
    """The lines of a menu or text window, which ends with "(end)", "(1 of 2)" or "--More--"."""
    lines = [bytes(row).decode("latin-1") for row in terminal]
    for number in range(len(lines) - 1, 1, -1):  # the first two rows are messages
        if end := PAGE_END.search(lines[number]):
            shown = (line[end.start() :].strip() for line in lines[:number])
            return "\n".join([*filter(None, shown), end.group()])
    return ""


def _spread(offered: str) -> list[str]:
    """The keys of "- a-cf" or "ynq", each by itself."""
    keys: list[str] = []
    for first, last, single in re.findall(r"([A-Za-z])-([A-Za-z])|(\S)", offered):
        keys += [single] if single else [chr(c) for c in range(ord(first), ord(last) + 1)]
    return list(dict.fromkeys(keys))
