"""Sums of credit rules, written as a recipe writes them, and whitening after any rule.

`rloo + 0.5*anchor` adds the advantages of two rules; GiGPO is `drgrpo + 1.0*anchor`. Rules
are named as registered, or `module:function`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.learning.credit.applied_rule import Applied
from palaestra.learning.credit.rule import Credit, CreditRule, groups, normalised
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import REMEMBERED, Component, Kind, Need, find

_TERM = re.compile(
    r"""\s* (?P<sign>[+-])?
        \s* (?: (?P<weight> (?:\d+\.?\d*|\.\d+) (?:[eE][+-]?\d+)? ) \s*\*\s* )?
        (?P<name> [A-Za-z_][\w.]* (?: :[A-Za-z_]\w* | \+\+ )? ) \s*""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Term:
    """One weighted rule of an expression."""

    weight: float
    part: Component

    @property
    def remembers(self) -> bool:
        """Whether the rule takes the state that it returned for the previous batch."""
        return REMEMBERED in self.part.options


@dataclass(frozen=True, slots=True)
class Sum:
    """The rule that adds up weighted rules; see `parse`."""

    terms: tuple[Term, ...]
    rules: tuple[Applied, ...]  # of each term, with its options

    def __call__(
        self, batch: Sequence[Trajectory], *, state: Mapping[str, float] | None = None
    ) -> Credit:
        """Add the rules' advantages.

        Args:
            batch: rollouts.
            state: `Credit.state` of the previous batch.

        Raises:
            InputError: more than one rule has targets for the critic, or see `Applied`.
        """
        totals = [torch.zeros(trajectory.tokens, dtype=torch.float64) for trajectory in batch]
        returns: list[Tensor] | None = None
        teacher = ""  # the rule that set the targets
        merged: dict[str, float] = {}
        for term, rule in zip(self.terms, self.rules, strict=True):
            credit = rule(batch, state=self._own(term, state)) if term.remembers else rule(batch)
            pairs = zip(totals, credit.advantages, strict=True)
            totals = [total + term.weight * advantages for total, advantages in pairs]
            if credit.returns is not None:
                if returns is not None:
                    raise InputError(_two_teachers(teacher, term.part.name))
                returns, teacher = credit.returns, term.part.name
            merged |= {self._prefix(term) + name: value for name, value in credit.state.items()}
        return Credit(totals, returns, merged)

    def _prefix(self, term: Term) -> str:
        return f"{term.part.name}." if len(self.terms) > 1 else ""

    def _own(self, term: Term, state: Mapping[str, float] | None) -> dict[str, float]:
        """Return the part of a merged state that belongs to this term."""
        prefix = self._prefix(term)
        found = (state or {}).items()
        return {name.removeprefix(prefix): v for name, v in found if name.startswith(prefix)}


def parse(expression: str, options: Mapping[str, Any] | None = None) -> CreditRule:
    """Return the rule that an expression names.

    `rule`, or rules joined by + and -, each with an optional weight: `rloo + 0.5*anchor`.
    Advantages add up. The critic's targets are those of the only rule that has some. States
    are merged under `rule.name`; a result whose rules have state takes them back as `state=`.
    What each rule returns is checked, and where players have results of their own, each
    player's turns are judged by its own (see `Applied`).

    Args:
        expression: what to look up.
        options: for a single rule its options; for a sum one mapping for each rule by name.

    Raises:
        RecipeError: an expression that cannot be read, or an option that a rule does not have.
        UnknownName: a rule that does not exist.
    """
    terms = _terms(expression)
    teachers = [term.part.name for term in terms if term.part.targets]
    if len(teachers) > 1:
        raise RecipeError(_two_teachers(*teachers[:2]))
    own = _options_by_rule(expression, terms, options or {})
    parts = [term.part for term in terms]
    rules = tuple(Applied(part, part.configured(own[part.name])) for part in parts)
    return rules[0] if len(terms) == 1 and terms[0].weight == 1.0 else Sum(terms, rules)


def names(expression: str) -> tuple[str, ...]:
    """Return the rules of an expression.

    Raises:
        RecipeError, UnknownName: as `parse`.
    """
    return tuple(term.part.name for term in _terms(expression))


def needs(expression: str, options: Mapping[str, Any] | None = None) -> frozenset[Need]:
    """Return all that an expression's rules, with these options, read beyond tokens and returns.

    Raises:
        RecipeError, UnknownName: as `parse`.
    """
    terms = _terms(expression)
    own = _options_by_rule(expression, terms, options or {})
    return frozenset(n for term in terms for n in term.part.needs_with(own[term.part.name]))


def options(expression: str) -> dict[str, Any]:
    """Return the options of `parse`, with defaults, and `state` where a rule has one.

    Raises:
        RecipeError, UnknownName: as `parse`.
    """
    terms = _terms(expression)
    if len(terms) == 1:
        return terms[0].part.options
    found: dict[str, Any] = {term.part.name: term.part.options for term in terms}
    if any(term.remembers for term in terms):
        found["state"] = None
    return found


_SCOPES: dict[str, Callable[[int, Trajectory], Hashable]] = {
    "batch": lambda number, trajectory: "",
    "task": lambda number, trajectory: trajectory.task,
    "group": lambda number, trajectory: trajectory.group,
    "trajectory": lambda number, trajectory: number,
}


def whiten(
    credit: Credit,
    batch: Sequence[Trajectory],
    scope: str = "batch",
    *,
    ddof: int = 1,
    eps: float = 1e-8,
) -> Credit:
    """Standardise advantages over all sampled tokens of the scope.

    `(A - mean) / (std + eps)`; the critic's targets and the state stay as they are. "task" is
    AgentRL's normalisation over families of tasks (known from a digest), "batch" is PPO's.
    Long rollouts weigh more, and a family with one group in the batch becomes noise. Zeros of
    rollouts that are not to be trained count, and do not stay zero.

    Args:
        credit: a rule's result for `batch`.
        batch: rollouts.
        scope: "batch", "task" (`Trajectory.task`), "group" or "trajectory".
        ddof: 1 divides the variance by n - 1, 0 by n; n counts tokens.
        eps: added to the standard deviation, in units of reward.

    Raises:
        UnknownName: a scope that does not exist.
    """
    if scope not in _SCOPES:
        raise UnknownName("scope of whitening", scope, _SCOPES)
    advantages = list(credit.advantages)
    for members in groups([_SCOPES[scope](number, t) for number, t in enumerate(batch)]):
        parts = [credit.advantages[i] for i in members]
        flat = normalised(torch.cat(parts), ddof=ddof, eps=eps)
        for i, values in zip(members, flat.split([len(part) for part in parts]), strict=True):
            advantages[i] = values
    return Credit(advantages, credit.returns, credit.state)


def _options_by_rule(
    expression: str, terms: Sequence[Term], options: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """Return each rule's own options; raise RecipeError where those of a sum name no rule."""
    names = [term.part.name for term in terms]
    if len(terms) == 1:
        return {names[0]: options}
    for name, own in options.items():
        if name not in names or not isinstance(own, Mapping):
            raise RecipeError(
                f"Options of '{expression}' are given by rule, one table for each of "
                f"{', '.join(names)}, but got '{name}' = {own!r}."
            )
    return {name: options.get(name, {}) for name in names}


def _two_teachers(one: str, other: str) -> str:
    return (
        f"'{one}' and '{other}' both set targets for the critic, which can learn only one; leave "
        "one of them out of the sum."
    )


def _terms(expression: str) -> tuple[Term, ...]:
    found: list[Term] = []
    position = 0
    while position < len(expression) or not found:
        match = _TERM.match(expression, position)
        if match is None or (found and not match["sign"]):
            raise RecipeError(
                f"The credit '{expression}' cannot be read from '{expression[position:]}' on; "
                "name a rule, or join several by + or -, each with an optional weight, as in "
                "'rloo + 0.5*anchor'."
            )
        weight = float(match["weight"] or 1.0) * (-1.0 if match["sign"] == "-" else 1.0)
        if not math.isfinite(weight):
            raise RecipeError(
                f"The credit '{expression}' weighs '{match['name']}' by {match['weight']}, which "
                "is too large a number."
            )
        part = find(Kind.CREDIT, match["name"])
        if any(term.part.name == part.name for term in found):
            raise RecipeError(
                f"The credit '{expression}' names '{part.name}' twice; write it once, with the sum "
                "of its weights."
            )
        found.append(Term(weight, part))
        position = match.end()
    return tuple(found)
