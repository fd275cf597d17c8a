"""Advantages of recorded rollouts: the recipe's credit rule applied to each reply.

A run does not store advantages: they follow from its episodes and its recipe, and are recomputed
here, over the whole phase as in training. If the recipe names no rule, leave-one-out is used. The
learning package is imported on first use, since the import is slow.
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
from palaestra.store.run_folder import RunFolder

if TYPE_CHECKING:
    from palaestra.learning.methods.algorithms import Method

MOST = 2048  # episodes of a phase that is read whole; of a larger one, only the group is read
FALLBACK = "rloo"  # algorithm whose credit is used if the recipe names none
_CACHED = 32  # results in the cache


@dataclass(frozen=True, slots=True)
class Credits:
    """A rule's credit for the rollouts of one task, or why there is none."""

    rule: str = ""
    remark: str = ""  # how it was computed, or why not, in one sentence
    tokens: Mapping[tuple[Key, int], Sequence[float]] = field(default_factory=dict)  # by call
    returns: Mapping[Key, float] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """The largest absolute advantage, at which colours are saturated."""
        return max((abs(a) for of in self.tokens.values() for a in of), default=0.0)

    def of_call(self, key: Key, call: int) -> Sequence[float]:
        """Return the advantage of each sampled token of a reply; empty if there is none."""
        return self.tokens.get((key, call), ())

    def mean(self, key: Key, call: int) -> float | None:
        """Return the mean over the tokens of a reply; None without any."""
        values = self.of_call(key, call)
        return sum(values) / len(values) if values else None


_cache: OrderedDict[tuple[Path, str, int, int], Credits] = OrderedDict()
_lock = Lock()


def cached_credits(run: RunFolder, phase: str, group: int) -> Credits | None:
    """Return the credits of a group if they were computed since its phase's last episode."""
    key = (run.path, phase, group, count_of(run.database, phase))
    with _lock:
        return _cache.get(key)


def credits_of(run: RunFolder, phase: str, group: int) -> Credits:
    """Return the credits of the rollouts of one task; compute them if necessary."""
    key = (run.path, phase, group, count_of(run.database, phase))
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    found = _computed(run.database, phase, group, key[-1])
    with _lock:
        _cache[key] = found
        while len(_cache) > _CACHED:
            _cache.popitem(last=False)
    return found


# ── details ──────────────────────────────────────────────────────────────────


class _Group:
    """A database view in which a phase holds one group only."""

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
    from palaestra.learning.credit import compose
    from palaestra.learning.loop.batch import filtered, per_call
    from palaestra.learning.methods.needs import unmet_needs_reason
    from palaestra.training.renamed_keys import with_present_names
    from palaestra.training.stage_program import table_of
    from palaestra.training.trace import read_trace

    whole = count <= MOST
    trace = read_trace(database if whole else _Group(database, group), phase)
    recipe = with_present_names(database.get("recipe") or {})
    named = isinstance(recipe.get("rl"), Mapping)
    method = _method(table_of(recipe, phase) if named else None)
    credit = method.algorithm.credit
    returns = {t.key: t.total for t in trace.batch if t.key.group == group}
    reason = unmet_needs_reason(credit, compose.needs(credit), trace.batch)
    if reason is not None:
        return Credits(credit, f"No advantages: {reason}", returns=returns)
    batch = filtered(trace.batch, method)
    mine = {t.key for t in batch if t.key.group == group}
    if not mine:
        remark = f"The filter '{method.algorithm.filter}' leaves this group out of training."
        return Credits(credit, remark, returns=returns)
    tokens = per_call(batch, method.credit(batch, {}).advantages)
    remark = f"by {credit}, as in the recipe" if named else f"by {credit}: no recipe names a rule"
    remark += ", over the whole phase" if whole else ", over this group alone"
    if method.remembers:
        remark += ", without the rule's state from earlier steps"
    return Credits(
        credit,
        remark,
        {call: values for call, values in tokens.items() if call[0] in mine},
        returns,
    )


def _method(given: Mapping[str, Any] | None) -> Method:
    from palaestra.learning.methods.algorithms import Method, algorithm
    from palaestra.training.method import chosen
    from palaestra.training.reinforcement_section import Reinforcement

    if given is None:
        return Method(algorithm(FALLBACK))
    return Method(chosen(Reinforcement.model_validate(given)))
