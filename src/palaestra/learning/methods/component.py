"""Named parts of the learning library: a pure function, its source, and its needs.

A part registers itself with a decorator. Its docstring's first line is its summary; its keyword
arguments with defaults are its options, and their annotations declare the values that they take
(see `options`). Packages add parts by entry point `palaestra.learning` (a module to import);
`module:function` names one directly.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any, TypeVar

from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.core.paths import import_named, is_missing
from palaestra.learning.methods.options import fits, hint_of, words


class Kind(StrEnum):
    """The role of a part, and so its signature."""

    CREDIT = "credit"  # (Sequence[Trajectory], *, options) -> Credit
    LOSS = "loss"  # (Tokens, *, options) -> loss per token [M]
    CORRECTION = "correction"  # (Tokens, *, options) -> weight per token [M], no gradient
    FILTER = "filter"  # (Sequence[Sequence[Trajectory]], *, options) -> list[bool]
    CURRICULUM = "curriculum"  # see curricula
    EXAMPLES = "examples"  # imitation and preference: see imitation
    PREFERENCE = "preference"  # pair and label losses: see preference
    REWARD = "reward"  # (Episode, *, options) -> float, or list[float] with one per step
    ALGORITHM = "algorithm"  # a class that learns by itself, besides `algorithms.ALGORITHMS`


class Status(StrEnum):
    """How well a definition is verified."""

    RELEASE = "release"  # read in the authors' or a major framework's public code
    PAPER = "paper"  # read in the paper, or in a text that quotes its equations
    EXPERIMENTAL = "experimental"  # from abstracts, digests or memory: not the authors' text
    OURS = "ours"


class Need(StrEnum):
    """Inputs of a part beyond tokens and returns."""

    GROUP = "groups"  # several rollouts of one task from one initial state
    OTHERS = "other rollouts"  # more than one in a batch, of whatever tasks
    TURN_REWARD = "turn rewards"
    VALUE = "values"  # a critic
    ANCHOR = "anchors"  # state keys
    BELIEF = "beliefs"  # probability of a known answer after each turn
    CONTRIBUTION = "contributions"  # a progress model
    GREEDY = "greedy rollouts"
    ROLES = "roles"  # of credit: outcomes by role; of examples: episodes in which several speak
    TREE = "trees"  # samples that share parents
    DURATION = "durations"
    REFERENCE = "reference log-probabilities"
    SNAPSHOT = "snapshots"  # the environment can save and restore its state
    PROGRESS = "progress"  # the environment declares how much of the task is done
    ERROR = "errors"  # estimates of the error of a world model, or a critic, on each task
    SKILL = "skills"  # which skill each task exercises
    PREFERENCE = "preferences"  # pairs or labels of responses, and a stage that learns from them
    ATTEMPT = "attempts"  # at one task, failures and successes, to be joined as one
    HINT = "hints"  # in prompts, to be removed again
    COMMAND = "commands"  # in prompts: the return to earn
    GOAL = "goals"  # that tasks state, and that states achieve
    ADVISOR = "an advisor"  # that acts in some turns of the rollouts
    ACTION_VALUE = "action values"  # a critic of replies or tokens, learned off-policy


Options = Mapping[str, Any]
"""Name to value."""

REMEMBERED = "state"  # the option by which a rule takes back its state after the previous batch
FILLED = (REMEMBERED, "most_turns")  # options that the run fills in, and no recipe may


@dataclass(frozen=True, slots=True)
class Component:
    """One registered part."""

    kind: Kind
    name: str
    function: Callable[..., Any]
    source: str
    status: Status
    needs: frozenset[Need]  # whatever its options
    when: Mapping[Need, Callable[[Options], bool]] = field(default_factory=dict)
    """What it needs besides, if its options, all of them, fulfil the condition."""
    check: Callable[[Options], None] | None = None
    """Raises RecipeError for options, all of them, that contradict each other."""
    targets: bool = False  # of credit: whether it sets targets for a critic

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """Default by name."""
        return {name: parameter.default for name, parameter in self._parameters().items()}

    def needs_with(self, options: Options) -> frozenset[Need]:
        """Return all that it needs with these options."""
        every = self.options | dict(options)
        return self.needs | {need for need, holds in self.when.items() if holds(every)}

    def configured(self, options: Options) -> Callable[..., Any]:
        """Return the function with these options.

        Raises:
            RecipeError: an option that the part does not have, a value that the option does not
                take, or options that contradict each other.
        """
        has = self._parameters()
        for name, value in options.items():
            if name not in has:
                raise RecipeError(
                    f"The {self.kind} '{self.name}' has no option '{name}'; it has: "
                    f"{', '.join(has) or 'none'}."
                )
            hint, filled = hint_of(self.function, has[name]), name in FILLED
            if not fits(value, hint) or (filled and value is not None):
                taken = "left out, as the run fills it in" if filled else words(hint)
                raise RecipeError(
                    f"The {self.kind} '{self.name}' cannot take {name} = {value!r}: it must be "
                    f"{taken} (by default {has[name].default!s})."
                )
        if self.check is not None:
            self.check(self.options | dict(options))
        return partial(self.function, **options) if options else self.function

    def _parameters(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.function).parameters.values()
        options = (p for p in parameters if p.kind is p.KEYWORD_ONLY)
        return {p.name: p for p in options if p.default is not p.empty}


MODULES = (
    "palaestra.learning.credit.returns",
    "palaestra.learning.credit.gae",
    "palaestra.learning.credit.anchors",
    "palaestra.learning.credit.turn_rewards",
    "palaestra.learning.credit.progress_attribution",
    "palaestra.learning.credit.roles",
    "palaestra.learning.losses.policy_loss",
    "palaestra.learning.losses.corrections",
    "palaestra.learning.data.filters",
    "palaestra.learning.data.reward_terms",
    "palaestra.learning.curricula.horizon",
    "palaestra.learning.curricula.task_sampling",
    "palaestra.learning.curricula.start_states",
    "palaestra.learning.curricula.feedback",
    "palaestra.learning.data.examples.cloning",
    "palaestra.learning.data.examples.rejection",
    "palaestra.learning.data.examples.step_masks",
    "palaestra.learning.data.examples.journey",
    "palaestra.learning.data.examples.decisions",
    "palaestra.learning.data.examples.splice",
    "palaestra.learning.data.examples.return_conditioning",
    "palaestra.learning.data.examples.goal_relabelling",
    "palaestra.learning.data.examples.distillation",
    "palaestra.learning.data.examples.feedback_labels",
    "palaestra.learning.data.examples.flattened",
    "palaestra.learning.data.examples.granular_skills",
    "palaestra.learning.data.examples.tool_need",
    "palaestra.learning.data.examples.world_knowledge",
    "palaestra.learning.data.examples.pairs",
    "palaestra.learning.data.examples.labels",
    "palaestra.learning.losses.preference",
    "palaestra.learning.critics.archer",
    "palaestra.learning.critics.ilql",
)
"""Palaestra's own parts, imported when a part is looked up."""

_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)")
_registered: dict[tuple[Kind, str], Component] = {}
F = TypeVar("F", bound=Callable[..., Any])


def component(
    kind: Kind,
    name: str,
    *,
    source: str,
    status: Status,
    needs: Collection[Need] = (),
    when: Mapping[Need, Callable[[Options], bool]] | None = None,
    check: Callable[[Options], None] | None = None,
    targets: bool = False,
) -> Callable[[F], F]:
    """Register the decorated function as a `Component`; it stays an ordinary function."""

    def register(function: F) -> F:
        _registered[kind, name] = Component(
            kind, name, function, source, status, frozenset(needs), when or {}, check, targets
        )
        return function

    return register


def components(kind: Kind) -> dict[str, Component]:
    """Return all parts of a kind by name: palaestra's, and those of installed packages."""
    _load()
    return {name: part for (k, name), part in sorted(_registered.items()) if k is kind}


def find(kind: Kind, name: str) -> Component:
    """Return the part of that name, or of `module:function`, which may be in this directory.

    Raises:
        UnknownName: there is no such part.
        InputError: the module exists, but cannot be imported.
    """
    if path := _PATH.fullmatch(name):
        function = _function(path["module"], path["function"])
        if function is None:
            raise UnknownName(kind, name, components(kind))
        for part in _registered.values():
            if part.kind is kind and part.function is function:
                return part
        return Component(kind, name, function, name, Status.OURS, frozenset())
    found = components(kind)
    if name not in found:
        raise UnknownName(kind, name, found)
    return found[name]


def name_of(function: Callable[..., Any]) -> str:
    """Return the name under which a part's function, configured or not, is registered."""
    while isinstance(function, partial):
        function = function.func
    registered = (p.name for p in _registered.values() if p.function is function)
    own = getattr(function, "__qualname__", type(function).__qualname__)
    return next(registered, f"{function.__module__}:{own}")


@cache
def _load() -> None:
    """Import all modules that register parts, once."""
    for module in MODULES:
        importlib.import_module(module)
    for point in entry_points(group="palaestra.learning"):
        point.load()


def _function(module: str, name: str) -> Callable[..., Any] | None:
    """Return the module's object of that name; None if there is no such module or function."""
    try:
        found = getattr(import_named(module), name, None)
    except ImportError as error:
        if is_missing(module, error):
            return None
        raise InputError(f"'{module}:{name}' cannot be imported: {error}.") from error
    return found if callable(found) else None
