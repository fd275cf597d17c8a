"""Objects of frozen dataclasses that are made quickly are as those of any frozen dataclass."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from palaestra.core.quick_init import quick_init


@dataclass(frozen=True, slots=True)
class Usual:
    first: int
    second: str = "two"
    third: Mapping[str, int] = field(default_factory=dict, hash=False)


@quick_init
@dataclass(frozen=True, slots=True)
class Quick:
    first: int
    second: str = "two"
    third: Mapping[str, int] = field(default_factory=dict, hash=False)


@pytest.mark.parametrize("given", [{"first": 1}, {"first": 1, "second": "b", "third": {"c": 3}}])
def test_an_object_has_the_fields_of_one_made_as_usual(given: dict[str, Any]) -> None:
    made, usual = Quick(**given), Usual(**given)
    assert type(made) is Quick
    assert repr(made) == repr(usual).replace("Usual", "Quick")
    assert hash(made) == hash(usual)
    assert made == Quick(**given)


def test_fields_may_be_given_by_position() -> None:
    assert Quick(1, "b", {"c": 3}) == Quick(third={"c": 3}, second="b", first=1)


def test_two_objects_do_not_share_what_a_factory_makes() -> None:
    assert Quick(1).third is not Quick(1).third


def test_an_object_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Quick(1).first = 2  # type: ignore[misc]


@pytest.mark.parametrize("given", [{}, {"first": 1, "fourth": 4}])
def test_missing_and_unknown_fields_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"first|fourth"):
        Quick(**given)


def test_copies_are_equal_and_of_the_class() -> None:
    made = Quick(1, third={"c": 3})
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), replace(made)):
        assert again == made
        assert type(again) is Quick
