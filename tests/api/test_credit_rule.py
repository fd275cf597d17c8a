"""`pa.credit_rule`: a plain function becomes a rule that recipes can name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import palaestra as pa
from palaestra.core.episode import Key
from palaestra.learning.credit.compose import parse
from palaestra.learning.methods import component
from palaestra.learning.methods.component import Kind, Need, find
from tests.api.worlds import raw_returns

WON = pa.Trajectory(Key("rl/1", 0, 0), "task", (pa.Turn(2), pa.Turn(1)), outcome=1.0)
LOST = pa.Trajectory(Key("rl/1", 0, 1), "task", (pa.Turn(1),), outcome=-1.0)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of these tests are known to no other test."""
    component.components(Kind.CREDIT)  # ours are there
    monkeypatch.setattr(component, "_registered", dict(component._registered))


def test_a_function_that_returns_tensors_is_found_by_its_name_with_its_options() -> None:
    rule = pa.credit_rule(source="a test", needs=["groups"])(raw_returns)
    assert [a.tolist() for a in rule([WON, LOST]).advantages] == [[1, 1, 1], [-1]]
    part = find(Kind.CREDIT, "raw_returns")
    assert (part.source, part.needs) == ("a test", frozenset({Need.GROUP}))
    assert part.options == {"scale": 1.0}
    halved = parse("rloo + raw_returns", {"raw_returns": {"scale": 0.5}})
    assert halved([WON, LOST]).advantages[1].tolist() == [-2.5]


def test_a_function_may_return_credit_and_the_decorator_stand_alone() -> None:
    @pa.credit_rule
    def whole(batch: Sequence[pa.Trajectory]) -> pa.Credit:
        """All ones."""
        return pa.Credit([torch.ones(t.tokens, dtype=torch.float64) for t in batch])

    assert parse("whole")([LOST]).advantages[0].tolist() == [1.0]
    assert find(Kind.CREDIT, "whole").summary == "All ones."


def test_a_rule_may_be_defined_again_but_not_instead_of_another() -> None:
    pa.credit_rule(raw_returns)
    pa.credit_rule(raw_returns)  # as a notebook's cell that is run again

    def rloo(batch: Sequence[pa.Trajectory]) -> list[torch.Tensor]:
        """Not the one."""
        return []

    with pytest.raises(pa.PalaestraError, match="The credit rule 'rloo' exists already"):
        pa.credit_rule(rloo)
    with pytest.raises(pa.PalaestraError, match=r"'group' is not a need .*choose from: .*groups"):
        pa.credit_rule(needs=["group"])(raw_returns)


def test_a_wrong_shape_is_refused_by_the_rules_name() -> None:
    @pa.credit_rule
    def short(batch: Sequence[pa.Trajectory]) -> list[torch.Tensor]:
        """One number where three are due."""
        return [torch.ones(1, dtype=torch.float64) for _ in batch]

    with pytest.raises(pa.PalaestraError, match="'short'"):
        parse("short")([WON, LOST])


def test_training_takes_a_rule_as_it_is(tmp_path: Path) -> None:
    rule = pa.credit_rule(raw_returns)
    run = pa.train(
        "quick",
        run=tmp_path / "run",
        progress=False,
        concurrency=8,
        environment={"id": "babyai/GoToObjS4", "transfer": None, "workers": 0},
        model={"context": 512, "tiny": {"layers": 1, "width": 32}},
        imitation={"demonstrations": 0},
        rl={"steps": 1, "tasks": 2, "group": 2, "credit": rule, "credit_options": {"scale": 2.0}},
        evaluation={"tasks": 2},
    )
    assert run.recipe["rl"]["credit"] == "raw_returns"
    assert run.metrics[0]["tokens"] > 0
