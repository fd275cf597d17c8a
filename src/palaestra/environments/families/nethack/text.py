"""NetHack's screen as text: the message, the free directions, what is visible and where.

Positions are relative to the agent, in the words of its moves: "a boulder 2 north 3 east".
Messages, descriptions and the names of things are the game's own.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from nle import nethack

from palaestra.environments.families.nethack.game import Game
from palaestra.environments.families.nethack.map import (
    CORRIDORS,
    STEPS,
    Cell,
    Cells,
    Items,
    Reader,
    around,
    text,
)

KINDS, OF_A_KIND = 16, 4  # maximum of listed kinds of things, and of positions per kind
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
    """The game's display at one moment."""

    message: str
    at: Cell
    cells: Cells
    items: Items
    vitals: tuple[int, ...]  # the package's "blstats"
    asking: bool  # the game waits for one key
    typing: bool  # the game waits for a line of text
    paging: bool  # the game waits for the next page, or for a choice on this one
    page: str  # a menu or a long text in front of the map

    @classmethod
    def of(cls, game: Game, reader: Reader) -> Screen:
        """Read the current screen; the cells of a reader's earlier screens become invalid."""
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
        """Whether the page is a menu with choices."""
        return self.page.endswith(")")

    @property
    def offered(self) -> list[str]:
        """The keys that a question or a page offers."""
        if self.paging:
            return re.findall(r"^(\S) [-+] ", self.page, re.MULTILINE)
        brackets = re.findall(r"\[([^\]]+)\]", self.message) if self.asking else []
        return _spread(brackets[-1].split(" or ")[0]) if brackets else []

    def surroundings(self) -> str:
        """Render the free directions and the visible things, one line each."""
        texts = self.cells.texts
        if self.at not in texts:
            lines = [f"Free steps: {', '.join(self._free()) or 'none'}."]
            if seen := self._seen():
                lines.append(f"Seen: {'; '.join(seen)}.")
            texts[self.at] = "\n".join(lines)
        return texts[self.at]

    def condition(self, brief: bool) -> str:
        """Render health and troubles; unless brief, also level, gold and turn."""
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
        """List the directions with free steps, and the number of known free steps in each."""
        free = []
        for direction, (across, down) in STEPS.items():
            to = self.cells.diagonal if across and down else self.cells.walkable
            (x, y), steps = self.at, 0
            while (x := x + across, y := y + down) in to:
                steps += 1
            if steps:
                free.append(f"{direction} {steps}")
        return free

    def _seen(self) -> list[str]:
        (x, y), cells = self.at, self.cells
        # Beside the agent, the end of a corridor is already listed as a free direction.
        worth = (cells.ends - around(self.at)) | (cells.things - {self.at})
        places: dict[str, list[str]] = {}
        for _, _, right, down, where in sorted([_near(a - x, d - y) for a, d in worth]):
            kind = cells[x + right, y + down]
            name = "corridor end" if kind in CORRIDORS else kind
            places.setdefault(name, []).append(where)
        listed = [f"{kind} {_shortened(where)}" for kind, where in list(places.items())[:KINDS]]
        if len(places) > KINDS:
            listed.append(f"and {len(places) - KINDS} more things further away")
        return listed


@cache
def _near(right: int, down: int) -> tuple[int, int, int, int, str]:
    """Return a sort key by distance (2 numbers), the offset (2 numbers), and its text."""
    across, along = abs(right), abs(down)
    parts = [f"{along} {'south' if down > 0 else 'north'}"] if down else []
    parts += [f"{across} {'east' if right > 0 else 'west'}"] if right else []
    return max(across, along), across + along, right, down, " ".join(parts)


def _shortened(places: list[str]) -> str:
    listed, more = ", ".join(places[:OF_A_KIND]), len(places) - OF_A_KIND
    return f"{listed} and {more} more" if more > 0 else listed


def _page(terminal: Any) -> str:
    """Return the lines of a menu or text window that ends in "(end)", "(1 of 2)" or "--More--"."""
    lines = [bytes(row).decode("latin-1") for row in terminal]
    for number in range(len(lines) - 1, 1, -1):  # the first two rows are messages
        if end := PAGE_END.search(lines[number]):
            shown = (line[end.start() :].strip() for line in lines[:number])
            return "\n".join([*filter(None, shown), end.group()])
    return ""


def _spread(offered: str) -> list[str]:
    """Expand offered keys such as "- a-cf" or "ynq" into single keys."""
    keys: list[str] = []
    for first, last, single in re.findall(r"([A-Za-z])-([A-Za-z])|(\S)", offered):
        keys += [single] if single else [chr(c) for c in range(ord(first), ord(last) + 1)]
    return list(dict.fromkeys(keys))
