"""What NetHack shows, in words: the message, the ways that are free, what is seen and where.

Places are told from where the agent stands, in the words of its moves: "a boulder 2 north 3 east".
Messages, descriptions and the names of things are the game's own.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from nle import nethack

from palaestra.environments.grid.nethack_game import Game
from palaestra.environments.grid.nethack_map import (
    CORRIDORS,
    STEPS,
    Cell,
    Cells,
    Items,
    Reader,
    around,
    text,
)

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


class Screen(NamedTuple):
    """What the game shows at one moment."""

    message: str
    at: Cell
    cells: Cells
    items: Items
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

    def surroundings(self) -> str:
        """The free ways and what is seen, one line each."""
        told = self.cells.told
        if self.at not in told:
            lines = [f"Free steps: {', '.join(self._free()) or 'none'}."]
            if seen := self._seen():
                lines.append(f"Seen: {'; '.join(seen)}.")
            told[self.at] = "\n".join(lines)
        return told[self.at]

    def condition(self, brief: bool) -> str:
        """Health and what is wrong; unless brief, also how far one has come."""
        see = self.vitals
        parts = [f"HP {see[nethack.NLE_BL_HP]}/{see[nethack.NLE_BL_HPMAX]}"]
        if not brief:
            parts.append(
                f"power {see[nethack.NLE_BL_ENE]}/{see[nethack.NLE_BL_ENEMAX]}, "
                f"armor class {see[nethack.NLE_BL_AC]}, "
                f"experience level {see[nethack.NLE_BL_XP]}, "
                f"dungeon level {see[nethack.NLE_BL_DEPTH]}, "
                f"gold {see[nethack.NLE_BL_GOLD]}, "
                f"turn {see[nethack.NLE_BL_TIME]}"
            )
        parts += [HUNGER[see[nethack.NLE_BL_HUNGER]], BURDEN[see[nethack.NLE_BL_CAP]]]
        if troubles := see[nethack.NLE_BL_CONDITION]:
            parts += [name for mask, name in TROUBLES.items() if troubles & mask]
        return f"You: {', '.join(filter(None, parts))}."

    # ── details ──────────────────────────────────────────────────────────────

    def _free(self) -> list[str]:
        """The ways with free steps, and how many known ones can be taken."""
        free = []
        for way, (across, down) in STEPS.items():
            to = self.cells.aslant if across and down else self.cells.walkable
            (x, y), steps = self.at, 0
            while (x := x + across, y := y + down) in to:
                steps += 1
            if steps:
                free.append(f"{way} {steps}")
        return free

    def _seen(self) -> list[str]:
        (x, y), cells = self.at, self.cells
        # beside the agent, the end of a corridor is a free way
        worth = (cells.ends - around(self.at)) | (cells.things - {self.at})
        places: dict[str, list[str]] = {}
        for _, _, right, down, where in sorted([_near(a - x, d - y) for a, d in worth]):
            kind = cells[x + right, y + down]
            told_as = "corridor end" if kind in CORRIDORS else kind
            places.setdefault(told_as, []).append(where)
        told = [f"{kind} {_several(where)}" for kind, where in list(places.items())[:KINDS]]
        if len(places) > KINDS:
            told.append(f"and {len(places) - KINDS} more things further away")
        return told


@cache
def _near(right: int, down: int) -> tuple[int, int, int, int, str]:
    """What sorts the places by how near they are, and the place from here, also in words."""
    across, along = abs(right), abs(down)
    parts = [f"{along} {'south' if down > 0 else 'north'}"] if down else []
    parts += [f"{across} {'east' if right > 0 else 'west'}"] if right else []
    return max(across, along), across + along, right, down, " ".join(parts)


def _several(places: list[str]) -> str:
    told, more = ", ".join(places[:OF_A_KIND]), len(places) - OF_A_KIND
    return f"{told} and {more} more" if more > 0 else told


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
