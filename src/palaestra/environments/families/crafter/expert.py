"""A scripted player of Crafter that knows the whole map: the oracle's policy.

It is not part of the package. It uses the package's tables of requirements for collecting, placing
and making, works backwards from an achievement to the next action, and decides again at every step,
because creatures move. It fights adjacent enemies, eats and drinks in time, and hides behind stones
when it is dark or it is hurt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from crafter import constants, objects

from palaestra.environments.families.crafter.map import (
    OPEN,
    Cell,
    Map,
    NoPath,
    around,
    cell_of,
    distance,
    minus,
    plus,
)
from palaestra.environments.families.crafter.world import Repeatable

Site = tuple[Cell, Cell]  # two adjacent cells to be walled in

DUSKS = (0.0, 0.2, 0.4, 0.6)  # daylight at which it hides; tried in this order
STEPS = 1000  # of one attempt
LOW = {"health": 4, "food": 6, "drink": 6}  # levels at which it restores a need
WELL = {"health": 7, "food": 9, "drink": 9}  # levels at which it stops
LOW_IN_A_HURRY = {"health": 3, "food": 2, "drink": 2}  # at night, or if it never hides
TIRED = 2  # energy at which it sleeps even by day
RESTED = 9
REACH = 10  # search radius for a hiding site
FOES = (objects.Zombie, objects.Skeleton)


class Expert:
    """The scripted policy for one world."""

    def __init__(self, env: Repeatable, dusk: float) -> None:
        self._env, self._dusk = env, dusk
        self._map = Map(env)
        self._needs: set[str] = set()  # needs below LOW, until they reach WELL
        self._site: Site | None = None
        self._hopeless: set[Site] = set()  # sites that it could not use

    def act(self, goal: str) -> str:
        """Return the next action towards an achievement."""
        self._map = Map(self._env)
        for attempt in (self._fight, self._survive, lambda: self._towards(goal)):
            try:
                if action := attempt():
                    return action
            except NoPath:
                continue
        return "noop"

    # ── staying alive ────────────────────────────────────────────────────────

    def _fight(self) -> str:
        """Attack an adjacent enemy."""
        beside = any(self._map.is_a(cell, *FOES) for cell in around([self._map.here]))
        return self._attack(*FOES) if beside and not self._map.player.sleeping else ""

    def _survive(self) -> str:
        has = self._map.player.inventory
        if self._map.player.sleeping:
            return "sleep"
        dark = bool(self._env.world.daylight < self._dusk)
        low = LOW_IN_A_HURRY if dark or not self._dusk else LOW
        unmet = {need for need in self._needs if not dark and has[need] < WELL[need]}
        self._needs = unmet | {need for need, level in low.items() if has[need] <= level}
        able = bool(has["wood_pickaxe"])
        rest = "sleep" if has["energy"] < RESTED else "noop"
        if able and "health" in self._needs and has["food"] and has["drink"]:
            return self._hide(rest)
        if "drink" in self._needs:
            return self._towards("collect_drink")
        if "food" in self._needs:
            return self._towards("eat_cow")
        if able and (dark or has["energy"] <= TIRED):
            return self._hide(rest)
        return "sleep" if has["energy"] == 0 else ""

    def _hide(self, then: str) -> str:
        """Wall in two adjacent cells, enter them at one end, turn around and close it."""
        if self._site is None or not all(map(self._map.habitable, self._site)):
            self._site = self._choose_site()
        site = self._site
        sides = around(site)
        walls = [at for at in sides if self._map.open(at)]
        if not walls and self._map.here in site:
            return then
        first, second = site
        direction = minus(second, first)
        ends = (minus(first, direction), plus(second, direction))
        self._map.kept = sides if walls else [at for at in sides if at not in ends]
        try:
            if not walls:
                return self._map.go(lambda at, _: at in site, then)
            return self._wall_in(site, ends, walls)
        except NoPath:
            self._hopeless.add(site)
            self._site = None
            raise
        finally:
            self._map.kept = ()

    def _wall_in(self, site: Site, ends: Sequence[Cell], walls: list[Cell]) -> str:
        """Return the next action; build the walls farthest from the last one first."""
        if action := self._gather(Counter(stone=len(walls))):
            return action
        last = next((end for end in ends if end in walls), ends[0])
        if walls == [last]:
            return self._map.go(lambda at, faced: at in site and faced == last, "place_stone")
        for wall in sorted(walls, key=lambda at: -distance(at, last)):
            if wall != last:
                clear = self._map.free(wall, OPEN)
                return self._use(wall.__eq__, "place_stone" if clear else "do")
        raise NoPath

    def _choose_site(self) -> Site:
        """Choose the nearby site that needs the fewest stones.

        Raises:
            NoPath: there is none.
        """
        x, y = self._map.here
        found = []
        for i in range(-REACH, REACH + 1):
            for j in range(-REACH, REACH + 1):
                for direction in ((1, 0), (0, 1)):
                    site = (x + i, y + j), (x + i + direction[0], y + j + direction[1])
                    if site not in self._hopeless and all(map(self._map.habitable, site)):
                        walls = sum(map(self._map.open, around(site)))
                        digging = sum(not self._map.walkable(at) for at in site)
                        found.append((6 * walls + 2 * digging + abs(i) + abs(j), site))
        if not found:
            raise NoPath
        return min(found)[1]

    # ── getting on ───────────────────────────────────────────────────────────

    def _towards(self, goal: str) -> str:
        kind, _, thing = goal.partition("_")
        match kind, thing:
            case "collect", _:
                return self._collect(thing)
            case "place", _:
                return self._place(thing)
            case "make", _:
                return self._make(thing)
            case "eat", "cow":
                return self._attack(objects.Cow)
            case "eat", _:
                return self._eat_plant()
            case "wake", _:
                rested = self._map.player.inventory["energy"] >= constants.items["energy"]["max"]
                return "noop" if rested else "sleep"
        return self._defeat(thing)

    def _use(self, wanted: Callable[[Cell], bool], action: str) -> str:
        """Face a wanted cell and do the action on it."""
        return self._map.go(lambda _, faced: wanted(faced), action)

    def _attack(self, *kinds: type) -> str:
        return self._use(lambda at: self._map.is_a(at, *kinds), "do")

    def _defeat(self, foe: str) -> str:
        try:
            return self._attack({"zombie": objects.Zombie, "skeleton": objects.Skeleton}[foe])
        except NoPath:  # they spawn on grass at night, or in tunnels
            where = "grass" if foe == "zombie" else "path"
            return self._use(lambda at: self._map.free(at, [where]), "noop")

    def _collect(self, item: str) -> str:
        material, info = next(
            (material, info)
            for material, info in constants.collect.items()
            if item in info["receive"]
        )
        for tool, count in info["require"].items():
            if self._map.player.inventory[tool] < count:
                return self._make(tool)
        return self._use(lambda at: self._map.free(at, [material]), "do")

    def _gather(self, needs: Counter[str]) -> str:
        """Collect what is missing of `needs`; return "" if nothing is."""
        for item, count in needs.items():
            if self._map.player.inventory[item] < count:
                return self._collect(item)
        return ""

    def _place(self, thing: str, beside: str = "") -> str:
        info = constants.place[thing]
        return self._gather(Counter(info["uses"])) or self._map.go(
            lambda at, faced: (
                self._map.free(faced, info["where"]) and (not beside or self._map.near(at, beside))
            ),
            f"place_{thing}",
        )

    def _make(self, thing: str) -> str:
        info = constants.make[thing]
        first, *others = benches = info["nearby"]
        missing = [bench for bench in benches if not self._map.exists(bench)]
        needs = Counter(info["uses"])
        for bench in missing:
            needs += Counter(constants.place[bench]["uses"])
        if action := self._gather(needs):
            return action
        if not missing:
            try:
                return self._map.go(
                    lambda at, _: all(self._map.near(at, bench) for bench in benches),
                    f"make_{thing}",
                )
            except NoPath:  # they are apart, or blocked
                missing = others or [first]
        return self._place(missing[0], beside="" if missing[0] == first else first)

    def _eat_plant(self) -> str:
        """Plant a sapling, wall it in against creatures, and wait near it."""
        plants = [thing for thing in self._map.things.values() if isinstance(thing, objects.Plant)]
        if not plants:
            if not self._map.player.inventory["stone_sword"]:
                return self._make("stone_sword")
            return self._gather(Counter(stone=9, sapling=1)) or self._place("plant")
        plant = min(plants, key=lambda plant: distance(cell_of(plant), self._map.here))
        at = cell_of(plant)
        if plant.ripe:
            return self._use(at.__eq__, "do")
        sides = [side for side in around([at]) if self._map.open(side)]
        if sides:
            return self._gather(Counter(stone=1)) or self._use(
                lambda cell: cell in sides and self._map.free(cell, OPEN), "place_stone"
            )
        if distance(at, self._map.here) > REACH:  # plants grow only near the player
            return self._map.go(lambda cell, _: distance(cell, at) < REACH // 2, "noop")
        return self._hide("noop")


def solution(dump: bytes, goal: str) -> list[str]:
    """Return actions that lead from a dumped world to an achievement; empty if none succeed."""
    env = Repeatable(seed=0)
    for dusk in DUSKS:
        env.load(dump)
        if actions := _play(env, Expert(env, dusk), goal):
            return actions
    return []


def _play(env: Repeatable, expert: Expert, goal: str) -> list[str]:
    actions: list[str] = []
    done = False
    while not done and len(actions) < STEPS:
        actions.append(expert.act(goal))
        *_, done, _ = env.step(constants.actions.index(actions[-1]))
        if goal in env.unlocked:
            return actions
    return []
