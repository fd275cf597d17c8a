"""Options: they take exactly the values that their annotations declare."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import RecipeError
from palaestra.learning.losses.kl import Estimator
from palaestra.learning.losses.trained_tokens import Unit
from palaestra.learning.methods.component import Component, Kind, Need, Status, components
from palaestra.learning.methods.options import Range, fits, words

if TYPE_CHECKING:
    from palaestra.no_such_module import Unknown  # type: ignore[import-not-found]

HUGE = 10**400  # a whole number that is no float
EVERY = [part for kind in Kind for part in components(kind).values()]


def numeric(part: Component) -> Iterator[str]:
    """The options that take numbers."""
    for name in part.options:
        for value in (0, 1, 2, 0.5, 1.5, 100):
            if accepts(part, name, value):
                yield name
                break


def accepts(part: Component, name: str, value: Any) -> bool:
    given = {name: value}
    if part.name == "rejection" and name in ("low", "high"):  # they are checked together
        given |= {"estimator": "k1", "low": 0.5, "high": 2.0, name: value}
    try:
        part.configured(given)
    except RecipeError:
        return False
    return True


@pytest.mark.parametrize("part", EVERY, ids=[f"{part.kind}-{part.name}" for part in EVERY])
def test_no_numeric_option_of_any_part_takes_nan(part: Component) -> None:
    for name in numeric(part):
        for value in (math.nan, -math.inf, -HUGE):
            with pytest.raises(RecipeError, match=rf"cannot take {name} = .*: it must be "):
                part.configured({name: value})
        if name not in INFINITE.get((part.kind, part.name), ()):
            assert not accepts(part, name, math.inf), name


INFINITE = {
    (Kind.LOSS, "ppo"): ("dual",),
    (Kind.LOSS, "grpo"): ("dual",),
    (Kind.LOSS, "dapo"): ("dual",),
    (Kind.LOSS, "decoupled"): ("cap",),
}
"""Options whose definition gives infinity the meaning "without"."""


def test_infinity_is_taken_where_it_means_without() -> None:
    found = {(part.kind, part.name): part for part in EVERY}
    for key, names in INFINITE.items():
        for name in names:
            assert accepts(found[key], name, math.inf)
            assert not accepts(found[key], name, 0.5)


@pytest.mark.parametrize("part", EVERY, ids=[f"{part.kind}-{part.name}" for part in EVERY])
def test_every_default_is_within_its_bounds(part: Component) -> None:
    for name, default in part.options.items():
        part.configured({name: default})
    part.configured(part.options)


def test_there_are_numeric_options_to_be_checked() -> None:
    assert sum(len(list(numeric(part))) for part in EVERY) > 90


@pytest.mark.parametrize("part", EVERY, ids=[f"{part.kind}-{part.name}" for part in EVERY])
def test_no_part_takes_from_a_recipe_what_it_remembers(part: Component) -> None:
    if "state" in part.options:
        with pytest.raises(RecipeError, match="cannot take state"):
            part.configured({"state": {"baseline": 1.0}})


# Hints


TABLE: list[tuple[Any, list[Any], list[Any], str]] = [
    (float, [0.5, 1, -3], [math.nan, math.inf, True, "1", None, HUGE], "a finite number"),
    (int, [1, 0, -3], [1.0, True, "1", None], "a whole number"),
    (bool, [True, False], [1, 0, "true"], "true or false"),
    (str, ["a", Unit.TURN], [1, None], "a text"),
    (Annotated[float, Range(least=0, most=1)], [0, 1, 0.5], [-1e-9, 1.01], "a number in [0, 1]"),
    (Annotated[float, Range(above=0, below=1)], [0.5], [0, 1, math.nan], "a number in (0, 1)"),
    (Annotated[float, Range(above=0)], [1e-9, 1], [0, -1, math.inf], "a finite number above 0"),
    (Annotated[float, Range(least=2)], [2, 3.5], [1.9], "a finite number of at least 2"),
    (Annotated[float, Range(most=2)], [2, -9], [2.1, -math.inf], "a finite number of at most 2"),
    (Annotated[float, Range(below=2)], [1], [2], "a finite number below 2"),
    (
        Annotated[float, Range(above=1, most=math.inf)],
        [2, math.inf],
        [1, math.nan, -math.inf],
        "a number above 1, or inf",
    ),
    (Annotated[int, Range(least=1)], [1, 7], [0, 1.0, True], "a whole number of at least 1"),
    (Annotated[int, Range(least=1)] | None, [1, None], [0], "a whole number of at least 1"),
    (Literal[0, 1], [0, 1], [True, 1.0, 2], "0 or 1"),
    (Literal["a", "b", "c"], ["a"], ["d", 1, None], "one of a, b, c"),
    (Literal[Unit.TURN, Unit.ROLLOUT], ["turn", Unit.ROLLOUT], ["token"], "turn or rollout"),
    (Estimator, ["k1", Estimator.K3], ["k4", 1], "one of k1, k2, k3, k3+, k3-weighted"),
    (tuple[int, ...], [[1, 2], (1,), []], [1, [1.5], "12"], "a list, each a whole number"),
    (Sequence[Any], [[1, "a"]], [1], "a list"),
    (Callable[[int], int] | str, ["a", abs], [1], "a text"),
    (Mapping[str, float] | None, [None, {"a": 1.0}], [1, [1]], "a table"),
    (list[str] | dict[str, int], [["a"], {"a": 1}], ["a", [1]], "a list, each a text or a table"),
]


@pytest.mark.parametrize(
    ("hint", "good", "bad", "description"), TABLE, ids=[row[3] for row in TABLE]
)
def test_a_hint_takes_what_its_words_say(
    hint: Any, good: list[Any], bad: list[Any], description: str
) -> None:
    assert [value for value in good if not fits(value, hint)] == []
    assert [value for value in bad if fits(value, hint)] == []
    assert words(hint) == description


ENDS = st.one_of(st.none(), st.integers(-3, 3))


@given(ENDS, ENDS, ENDS, ENDS, st.floats(-5, 5))
def test_a_range_holds_what_all_of_its_ends_admit(
    least: int | None, above: int | None, most: int | None, below: int | None, value: float
) -> None:
    inside = (
        (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    )
    assert (value in Range(least, above, most, below)) == inside


# Plug-ins


def plugged(batch: Unknown, *, ratio: Unknown = 0.5, share: Share = 0.5, free=None) -> None:  # type: ignore[no-untyped-def]  # noqa: F821
    """A part of a package that imports its types for the type checker only."""


def test_an_annotation_that_cannot_be_read_leaves_the_type_of_the_default() -> None:
    part = Component(Kind.CREDIT, "plugged", plugged, "a test", Status.OURS, frozenset())
    part.configured({"ratio": 7, "share": -2.0, "free": object()})
    for name in ("ratio", "share"):
        for value in (math.nan, "x", True):
            with pytest.raises(RecipeError, match="a finite number"):
                part.configured({name: value})


def test_needs_may_depend_on_options() -> None:
    found = {(part.kind, part.name): part for part in EVERY}
    reinforce, grpo = found[Kind.CREDIT, "reinforce"], found[Kind.LOSS, "grpo"]
    assert reinforce.needs_with({}) == frozenset()
    assert reinforce.needs_with({"baseline": "group"}) == {Need.GROUP}
    assert reinforce.needs_with({"baseline": "batch"}) == {Need.OTHERS}
    assert grpo.needs_with({}) == frozenset()
    assert grpo.needs_with({"beta": 0.1}) == {Need.REFERENCE}
