"""The text of Crafter's observations, its rules, and its admissible actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

from crafter import constants, objects

from palaestra.environments.families.crafter.map import MOVES, cell_of, plus
from palaestra.environments.families.crafter.world import Repeatable

SIDES = {move.removeprefix("move_"): direction for direction, move in MOVES.items()}
VITAL = ("health", "food", "drink", "energy")
NAMES = {"plant-ripe": "ripe plant"} | {f"arrow-{side}": f"arrow flying {side}" for side in SIDES}
DARK = 0.5  # daylight below which the package draws darkness


def describe(env: Repeatable) -> str:
    """Describe what the picture shows."""
    player = env.player
    view = _view(*env.view)
    ground, things = env.seen()
    around = [
        f"{side} {_name(things[place]) if place in things else env.material(ground[place])}"
        for side, place in view.beside
    ]
    facing = next(side for side, direction in SIDES.items() if direction == tuple(player.facing))
    has = player.inventory
    carried = [f"{count} {as_words(item)}" for item, count in has.items() if item not in VITAL]
    carried = [text for text in carried if not text.startswith("0 ")]
    state = "" if env.world.daylight >= DARK else " It is dark."
    state += " You are asleep." if player.sleeping else ""
    seen = _seen(env, view, bytearray(ground), things)
    return (
        f"Beside you: {', '.join(around)}. You face {facing}.{state}\n"
        f"In view: {', '.join(seen)}.\n"
        f"{', '.join(f'{name} {has[name]}' for name in VITAL).capitalize()}. "
        f"You carry {', '.join(carried) or 'nothing'}."
    )


@dataclass(frozen=True)
class View:
    """The cells in view, numbered column by column."""

    here: int
    beside: list[tuple[str, int]]  # side, cell number
    paths: list[tuple[int, str]]  # by cell number: distance, and the offset as text
    nearest: list[tuple[int, str]]  # the same, nearest first
    sort: Callable[[bytearray], Iterable[int]]  # reorders from cell number to nearest first


@cache
def _view(width: int, height: int) -> View:
    cells = [(x - width // 2, y - height // 2) for x in range(width) for y in range(height)]
    paths = [(abs(x) + abs(y), _offset(x, y)) for x, y in cells]
    order = sorted(range(len(paths)), key=paths.__getitem__)
    beside = [(side, cells.index(direction)) for side, direction in SIDES.items()]
    return View(order[0], beside, paths, sorted(paths), itemgetter(*order))


def _seen(env: Repeatable, view: View, ground: bytearray, things: dict[int, Any]) -> list[str]:
    """List creatures, and the nearest of everything else with its count; nearest first."""
    creatures = []
    for place, thing in things.items():
        ground[place] = 0  # described as the thing
        far, text = view.paths[place]
        if place != view.here:
            creatures.append((far, f"{_name(thing)} {text}"))
    near = bytes(view.sort(ground))
    found = []
    for number in set(near) - {0}:  # 0: beyond the edge of the world
        far, text = view.nearest[near.index(number)]
        found.append((far, f"{env.material(number)} {text} ({near.count(number)})"))
    return [text for _, text in sorted(creatures) + sorted(found)]


def _name(thing: Any) -> str:
    return NAMES.get(thing.texture, thing.texture)


def _offset(x: int, y: int) -> str:
    parts = [f"{abs(y)} {'down' if y > 0 else 'up'}"] if y else []
    parts += [f"{abs(x)} {'right' if x > 0 else 'left'}"] if x else []
    return " ".join(parts)


def recipes(goals: Iterable[str]) -> list[str]:
    """Describe what the achievements need by the package's tables, including prerequisites."""
    rules: dict[str, str] = {}
    for goal in goals:
        _add_rule(goal, rules)
    return [rule for rule in rules.values() if rule]


def _add_rule(goal: str, rules: dict[str, str]) -> None:
    if goal in rules:
        return
    kind, _, thing = goal.partition("_")
    needs: list[str] = []
    first: list[str] = []
    if kind == "collect":
        info = next(info for info in constants.collect.values() if thing in info["receive"])
        needs = [f"the {as_words(tool)}" for tool in info["require"]]
        first = [f"make_{tool}" for tool in info["require"]]
    elif kind in ("place", "make"):
        info = getattr(constants, kind)[thing]
        benches = info.get("nearby", [])
        needs = [f"{count} {as_words(item)}" for item, count in info["uses"].items()]
        needs += [f"a {bench} near you" for bench in benches]
        first = [f"collect_{item}" for item in info["uses"]] + [f"place_{b}" for b in benches]
    elif goal == "eat_plant":
        needs, first = ["it ripe, long after you place a sapling"], ["place_plant"]
    rules[goal] = f"{as_words(goal)} needs {', '.join(needs)}" if needs else ""
    for other in first:
        _add_rule(other, rules)


def as_words(name: str) -> str:
    return name.replace("_", " ")


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(as_words, names))


# ── actions with an effect ───────────────────────────────────────────────────


def sensible(env: Repeatable) -> list[str]:
    """Return the package's names of the actions that have an effect now, by its tables."""
    player = env.player
    if player.sleeping:
        return ["noop"]
    has = player.inventory
    material, thing = env.world[plus(cell_of(player), player.facing)]
    close, _ = env.world.nearby(player.pos, 1)
    found = ["noop", *MOVES.values()]
    if _useful(material, thing, has):
        found.append("do")
    if has["energy"] < constants.items["energy"]["max"]:
        found.append("sleep")
    for name, info in constants.place.items():
        if thing is None and material in info["where"] and _affords(has, info["uses"]):
            found.append(f"place_{name}")
    for name, info in constants.make.items():
        if set(info["nearby"]) <= set(close) and _affords(has, info["uses"]):
            found.append(f"make_{name}")
    return found


def _useful(material: str | None, thing: Any, has: dict[str, int]) -> bool:
    """Return whether `do` has an effect on it."""
    if thing is not None:
        return (
            thing.ripe if isinstance(thing, objects.Plant) else not isinstance(thing, objects.Arrow)
        )
    info = constants.collect.get(material)
    return info is not None and _affords(has, info["require"])


def _affords(has: dict[str, int], needs: dict[str, int]) -> bool:
    return all(has[item] >= count for item, count in needs.items())
