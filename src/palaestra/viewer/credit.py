"""Advantages of recorded rollouts: what the recipe's own credit rule says of each reply.

A run does not store advantages: they follow from its episodes and its recipe, and are computed
again here, over the whole phase as in training. Where no recipe names a rule, groups are compared
by leave-one-out. Learning is imported when it is first asked for, as it takes a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import PalaestraError
from palaestra.store.database import Database
from palaestra.store.ranges import count_of, group_episodes
from palaestra.store.run import RunFolder

if TYPE_CHECKING:
    from palaestra.learning.algorithms import Method

MOST = 2048  # episodes of a phase that are read whole; of a larger one, only the group
FALLBACK = "rloo"  # algorithm whose credit serves where no recipe names one
_KEPT = 32  # results remembered


@dataclass(frozen=True, slots=True)
class Credits:
    """What a rule made of the rollouts of one task, or why it cannot."""

    rule: str = ""
    remark: str = ""  # how it was computed, or why not: one sentence
    tokens: Mapping[tuple[Key, int], Sequence[float]] = field(default_factory=dict)  # by call
    returns: Mapping[Key, float] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """The largest advantage in size, at which colours are full."""
        return max((abs(a) for of in self.tokens.values() for a in of), default=0.0)

    def of_call(self, key: Key, call: int) -> Sequence[float]:
        """The advantage of each sampled token of a reply; empty where there is none."""
        return self.tokens.get((key, call), ())

    def mean(self, key: Key, call: int) -> float | None:
        """The mean over the tokens of a reply."""
        values = self.of_call(key, call)
        return sum(values) / len(values) if values else None


_remembered: OrderedDict[tuple[Path, str, int, int], Credits] = OrderedDict()
_lock = Lock()


def remembered(run: RunFolder, phase: str, group: int) -> Credits | None:
    """The credits of a group where they have been computed, and no episode came since."""
    place = (run.path, phase, group, count_of(run.database, phase))
    with _lock:
        return _remembered.get(place)


def credits_of(run: RunFolder, phase: str, group: int) -> Credits:
    """The credits of the rollouts of one task; computes them if need be."""
    place = (run.path, phase, group, count_of(run.database, phase))
    with _lock:
        if place in _remembered:
            _remembered.move_to_end(place)
            return _remembered[place]
    found = _computed(run.database, phase, group, place[-1])
    with _lock:
        _remembered[place] = found
        while len(_remembered) > _KEPT:
            _remembered.popitem(last=False)
    return found


# ── details ──────────────────────────────────────────────────────────────────


class _Group:
    """A database in which a phase holds one group only."""

    def __init__(self, database: Database, group: int) -> None:
        self._database, self._group = database, group

    def phases(self) -> list[str]:
        return self._database.phases()

    def episodes(self, phase: str) -> list[Episode]:
        return group_episodes(self._database, phase, self._group)

    def get(self, name: str) -> Any:
        return self._database.get(name)

    def close(self) -> None:
        pass


def _computed(database: Database, phase: str, group: int, count: int) -> Credits:
    from pydantic import ValidationError

    try:
        return _ruled(database, phase, group, count)
    except (PalaestraError, ValidationError) as error:
        return Credits(remark=f"No advantages: {' '.join(str(error).split())}")


def _ruled(database: Database, phase: str, group: int, count: int) -> Credits:
    from palaestra.experiment.trace import read_trace
    from palaestra.learning.batch import kept, per_call
    from palaestra.learning.credit import compose
    from palaestra.learning.needs import refusal

    whole = count <= MOST
    trace = read_trace(database if whole else _Group(database, group), phase)
    recipe = database.get("recipe") or {}
    named = isinstance(recipe.get("rl"), Mapping)
    method = _method(recipe["rl"] if named else None)
    credit = method.algorithm.credit
    returns = {t.key: t.total for t in trace.batch if t.key.group == group}
    reason = refusal(credit, compose.needs(credit), trace.batch)
    if reason is not None:
        return Credits(credit, f"No advantages: {reason}", returns=returns)
    batch = kept(trace.batch, method)
    mine = {t.key for t in batch if t.key.group == group}
    if not mine:
        remark = f"The filter '{method.algorithm.filter}' leaves this group out of training."
        return Credits(credit, remark, returns=returns)
    tokens = per_call(batch, method.credit(batch, {}).advantages)
    remark = f"by {credit}, as the recipe has it" if named else f"by {credit}: no recipe names one"
    remark += ", over the whole phase" if whole else ", over this group alone"
    if method.remembers:
        remark += ", without what the rule remembered of earlier steps"
    return Credits(
        credit,
        remark,
        {place: values for place, values in tokens.items() if place[0] in mine},
        returns,
    )


def _method(given: Mapping[str, Any] | None) -> Method:
    from palaestra.experiment.method import chosen
    from palaestra.experiment.sections import Reinforcement
    from palaestra.learning.algorithms import Method, algorithm

    if given is None:
        return Method(algorithm(FALLBACK))
    return Method(chosen(Reinforcement.model_validate(given)))
