"""Goals of a synthesised world through an operator: beside rules, or told value by value.

rules  the world has a policy: rules in temporal logic (`composing/clauses.py`), of which one
       forbids the goal in one of two twins, and permits it in the other
told   the user leaves out what a new row is to hold, and tells each value when asked for it

Such a task is drawn again from its seed when it is read. So its line has its words, too: those of a
line that another version of palaestra made may differ, and it is refused then.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from palaestra.core.errors import InputError
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.crud_atoms import Add, Change, Delete
from palaestra.environments.families.apps.composing.forbidden import Forbidden, twin_of
from palaestra.environments.families.apps.composing.gaps import FOUND, OTHER_FACTS, read
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Gap,
    Goal,
    Path,
    Slots,
    Steps,
    call,
)
from palaestra.environments.families.apps.composing.verifier import written
from palaestra.environments.families.apps.state import State
from palaestra.environments.families.apps.stock.user import FACT
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.synthesised.linked_goals import AddLinked, linked_atoms
from palaestra.environments.families.synthesised.user_manners import (
    PLAIN,
    Manner,
    drawn_manner,
)

RULES, TOLD = "rules", "told"
BESIDES = 2  # rules about other goals, at most
FEWEST = 2  # values that are told


@dataclass(frozen=True, slots=True)
class Told(Atom):
    """A new row whose values the user tells one by one, when asked for each.

    The slots hold the goal (`goal`) and what is told (`gaps`), by the field. `guesses`: values that
    are used without asking, in near misses.
    """

    deed: Add | AddLinked
    manner: Manner = PLAIN  # of the user
    name: ClassVar[str] = TOLD
    words: ClassVar[tuple[str, ...]] = ("{text}",)

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps | {"user"}

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        drawn = self.deed.draw(world, rng)
        gaps = {} if drawn is None else _told_apart(self.deed.gaps(drawn))
        if drawn is None or len(gaps) < FEWEST:
            return None
        rest = [
            f"{field.replace('_', ' ')} {written(value)}"
            for field, value in drawn["given"].items()
            if field not in gaps
        ]
        what = f"a new {self.deed.noun.replace('_', ' ')} in {self.deed.app}"
        whose = f" for {drawn['targets']}" if "targets" in drawn else ""
        labels = [f"the {gap.label}" for gap in gaps.values()]
        listed = f"{', '.join(labels[:-1])} and {labels[-1]}"
        text = (
            f"Please add {what}{whose}{': ' if rest else ''}{', '.join(rest)}. Ask me for {listed}."
        )
        others = dict(rng.sample(sorted(OTHER_FACTS.items()), 2))
        found = {"goal": Goal(self.deed, drawn), "gaps": gaps, "others": others}
        return {**found, "text": self.manner.asks(text)}

    def steps(self, slots: Slots) -> Steps:
        given = dict(slots["goal"].slots["given"])
        for field, gap in slots["gaps"].items():
            if field in slots.get("guesses", {}):
                given[field] = slots["guesses"][field]
                continue
            told = yield call("user.ask", question=f"What is the {gap.label}?")
            said = told["answer"].partition(_sentence(gap))[2].split("\n")[0]
            given[field] = read(said, {"kind": gap.kind})
        yield from self.deed.steps({**slots["goal"].slots, "given": given})

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        misses: list[Slots] = []
        goal, gaps = slots["goal"], slots["gaps"]
        for other in self.deed.near_misses(goal.slots, world, rng):
            changed = {
                field: value
                for field, value in other["given"].items()
                if field in gaps and value != goal.slots["given"][field]
            }
            guessed = {**slots, "guesses": changed}
            misses.append(guessed if changed else {**slots, "goal": Goal(self.deed, other)})
        return misses

    def plant(self, slots: Slots, state: State) -> None:
        """Write what the user knows: each value, and what no task needs."""
        facts = dict(slots["others"])
        for field, gap in slots["gaps"].items():
            value = slots["goal"].slots["given"][field]
            facts[" ".join(sorted(_keywords(gap)))] = _sentence(gap) + written(value)
        for keywords, answer in facts.items():
            row = {"owner": MAIN, "keywords": keywords, "answer": self.manner.tells(answer)}
            state.insert(FACT, row)


def operated(
    world: World, operator: str, seed: int, *, permitted: bool = False, manner: str = ""
) -> Composition | None:
    """Return a goal of a world through an operator; None if this seed gives none.

    Args:
        world: with the app `user`, as the user knows it before the goal.
        operator: `RULES` or `TOLD`.
        seed: what is drawn.
        permitted: of twins, that which the rules permit.
        manner: what the manner of a user who is asked is drawn from; empty: they have none.
    """
    rng = random.Random(f"{operator} {seed}")
    atoms = linked_atoms(world.suite)
    if operator == TOLD:
        adding = [atom for atom in atoms if isinstance(atom, (Add, AddLinked))]
        told = Told(rng.choice(adding), drawn_manner(manner) if manner else PLAIN)
        slots = told.draw(world, rng)
        return None if slots is None else Composition((Goal(told, slots),))
    plain = [atom for atom in atoms if isinstance(atom, (Add, Change, Delete))]
    ruled = Forbidden(_drawn(plain, rng), tuple(_drawn(plain, rng) for _ in range(BESIDES)))
    slots = ruled.draw(world, rng)
    if slots is None:
        return None
    return Composition((Goal(ruled, twin_of(slots) if permitted else slots),))


def operated_line(
    operator: str, seed: int, task: Composition, permitted: bool, manner: str = ""
) -> dict[str, Any]:
    """Return the part of a line that says which task it is."""
    drawn = {"operator": operator, "seed": seed, "permitted": permitted}
    drawn |= {"manner": manner} if manner else {}
    rules = [clause.rule.words for clause in task.policy]
    return {"goals": [drawn], "instruction": task.instruction, "rules": rules}


def is_operated(line: Mapping[str, Any]) -> bool:
    """Return whether a line is of a goal through an operator."""
    return bool(line["goals"]) and "operator" in line["goals"][0]


def operated_task(line: Mapping[str, Any], world: World) -> Composition:
    """Return the task of a line in its untouched world.

    Raises:
        InputError: another version of palaestra made it, and this one would make another one.
    """
    (given,) = line["goals"]
    operator, seed, permitted = (given[key] for key in ("operator", "seed", "permitted"))
    manner = given.get("manner", "")
    task = operated(world, operator, seed, permitted=permitted, manner=manner)
    if task is None or operated_line(operator, seed, task, permitted, manner) != {
        key: line[key] for key in ("goals", "instruction", "rules")
    }:
        raise InputError(
            f"The task '{line['instruction']}' was made by another version of palaestra, and this "
            "one would make another task of it; synthesise it again in a new folder."
        )
    return task


# ── details ──────────────────────────────────────────────────────────────────


def _drawn(atoms: Sequence[Atom], rng: random.Random) -> Atom:
    """Draw a kind first, so that apps with many entities do not crowd out the others."""
    name = rng.choice(sorted({atom.name for atom in atoms}))
    return rng.choice([atom for atom in atoms if atom.name == name])


def _told_apart(gaps: Mapping[Path, Gap]) -> dict[str, Gap]:
    """Return the gaps, by their field, whose words are in no other label."""
    found = {path[-1]: gap for path, gap in gaps.items() if gap.kind in FOUND}
    return {
        field: gap
        for field, gap in found.items()
        if _keywords(gap)
        and not any(
            _keywords(gap) & _keywords(other) for name, other in found.items() if name != field
        )
    }


def _keywords(gap: Gap) -> frozenset[str]:
    return frozenset(word for word in gap.label.casefold().split() if len(word) > 2)


def _sentence(gap: Gap) -> str:
    return f"The {gap.label} is "
