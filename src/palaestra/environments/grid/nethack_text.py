"""What NetHack shows, in words: the message, the ways that are free, what is seen and where.

Places are told from where the agent stands, in the words of its moves: "a boulder 2 north 3 east".
Messages, descriptions and the names of things are the game's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from nle import nethack

from palaestra.environments.grid.nethack_game import Game

Cell = tuple[int, int]  # column, row

STEPS: dict[str, Cell] = {
    "north": (0, -1),
    "northeast": (1, -1),
    "east": (1, 0),
    "southeast": (1, 1),
    "south": (0, 1),
    "southwest": (-1, 1),
    "west": (-1, 0),
    "northwest": (-1, -1),
}
CORRIDORS = {"corridor", "lit corridor"}
GROUND = CORRIDORS | {"floor of a room", "dark part of a room"}
DOORS = {"doorway", "open door", "broken door"}  # not to be passed aslant
UNTOLD = GROUND | {"wall", "stone"}
OPEN = GROUND | DOORS | {"cloud", "ice", "lowered drawbridge"}
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
    cells: dict[Cell, str]  # what is seen or remembered there; nothing where nothing is known
    items: dict[str, str]  # letter -> thing carried
    vitals: tuple[int, ...]  # the package's "blstats"
    asking: bool  # for one key
    typing: bool  # for a line of text
    paging: bool  # for the next page, or a choice on this one
    page: str  # a menu or a long text in front of the map

    @classmethod
    def of(cls, game: Game) -> Screen:
        vitals = tuple(map(int, game.see("blstats")))
        internal = game.see("internal")
        paging = bool(internal[3])
        letters, things = game.see("inv_letters"), game.see("inv_strs")
        return cls(
            message=_text(game.see("message")),
            at=(vitals[nethack.NLE_BL_X], vitals[nethack.NLE_BL_Y]),
            cells=_cells(game.see("screen_descriptions")),
            items={
                chr(letter): _text(thing)
                for letter, thing in zip(letters, things, strict=True)
                if letter
            },
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
        brackets = re.findall(r"\[([^\]]+)\]", self.message)
        return _spread(brackets[-1].split(" or ")[0]) if self.asking and brackets else []

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
        aslant = bool(across and down)
        (x, y), steps = self.at, 0
        while True:
            x, y = x + across, y + down
            there = self.cells.get((x, y), "")
            if not walkable(there) or (aslant and there in DOORS):
                return steps
            steps += 1

    def _seen(self) -> list[str]:
        places: dict[str, list[Cell]] = {}
        worth = [cell for cell, kind in self.cells.items() if kind not in UNTOLD]
        worth += [cell for cell, kind in self.cells.items() if self._ends_here(cell, kind)]
        for cell in sorted(worth, key=self._distance):
            if cell != self.at:
                kind = self.cells[cell]
                told_as = "corridor end" if kind in CORRIDORS else kind
                places.setdefault(told_as, []).append(cell)
        told = [f"{kind} {self._where(cells)}" for kind, cells in list(places.items())[:KINDS]]
        if len(places) > KINDS:
            told.append(f"and {len(places) - KINDS} more things further away")
        return told

    def _ends_here(self, cell: Cell, kind: str) -> bool:
        """Whether this is as much of a corridor as is known; beside the agent it is a free way."""
        if kind not in CORRIDORS or self._distance(cell)[0] < 2:
            return False
        x, y = cell
        beside = [(x + a, y + d) for a, d in STEPS.values()]
        return sum(walkable(self.cells.get(c, "")) or c == self.at for c in beside) <= 1

    def _where(self, cells: list[Cell]) -> str:
        told = ", ".join(self._offset(cell) for cell in cells[:OF_A_KIND])
        more = len(cells) - OF_A_KIND
        return told + (f" and {more} more" if more > 0 else "")

    def _offset(self, cell: Cell) -> str:
        right, down = cell[0] - self.at[0], cell[1] - self.at[1]
        parts = [f"{abs(down)} {'south' if down > 0 else 'north'}"] if down else []
        parts += [f"{abs(right)} {'east' if right > 0 else 'west'}"] if right else []
        return " ".join(parts)

    def _distance(self, cell: Cell) -> tuple[int, int, Cell]:
        right, down = abs(cell[0] - self.at[0]), abs(cell[1] - self.at[1])
        return max(right, down), right + down, cell


def walkable(kind: str) -> bool:
    """Whether a cell that is described like this is open ground, with nothing on it."""
    return kind in OPEN or kind.startswith(("staircase", "ladder"))


def _text(codes: Any) -> str:
    return bytes(codes).split(b"\0", 1)[0].decode("latin-1").strip()


def _cells(descriptions: Any) -> dict[Cell, str]:
    rows, columns = np.nonzero(descriptions[:, :, 0])
    words = descriptions[rows, columns].view(f"S{descriptions.shape[2]}").ravel()
    return {
        (int(column), int(row)): word.decode("latin-1")
        for column, row, word in zip(columns, rows, words, strict=True)
    }


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
