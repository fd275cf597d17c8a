"""Habits of agents that call tools, counted by hand."""

from __future__ import annotations

from dataclasses import replace

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.message import ToolCall
from palaestra.core.outcome import Outcome
from palaestra.evaluation.statistics.tool_habits import tool_habits, values_given
from tests.store.samples import episode


def lived(
    *turns: tuple[Action, str], number: int = 0, solved: bool = True, valid: bool = True
) -> Episode:
    """Return an episode that begins with a task and has these actions and observations."""
    made = episode(Key("x", number), turns=len(turns))
    steps = tuple(
        replace(step, action=action, transition=Transition(Observation(seen), valid=valid))
        for step, (action, seen) in zip(made.steps, turns, strict=True)
    )
    outcome = Outcome.success() if solved else Outcome.failure()
    return replace(made, observation=Observation("Pay Ann 25."), steps=steps, outcome=outcome)


def called(name: str, **arguments: object) -> Action:
    return Action(name, ToolCall(name, arguments))


def test_a_value_is_given_by_the_task_or_by_what_was_seen_before() -> None:
    one = lived(
        (Action("find(query='Ann')"), "ann@example.com"),
        (Action("pay(payee='ann@example.com', amount=25.0, note='as agreed')"), "done"),
        (Action("pay(payee='bob@example.com', amount=30)"), "done"),
        (Action("is no call"), "?"),
    )
    assert values_given(one) == [True, True, True, False, False]


def test_errors_recoveries_and_calls_are_counted_per_episode() -> None:
    error = (called("pay", amount=9999), '{"error": "too much"}')
    fine = (called("pay", amount=25), "done")
    found = tool_habits(
        [
            lived(error, fine, number=0),
            lived(error, number=1, solved=False),
            lived(fine, number=2),
            lived(fine, number=3, solved=False, valid=False),
        ]
    )
    assert found.episodes == 4
    assert found.calls is not None and found.calls.mean == 5 / 4
    assert found.refused is not None and found.refused.mean == 3 / 4
    assert found.recovered is not None and found.recovered.mean == 1 / 3
    assert found.invented is not None and found.invented.mean == 2 / 5
    assert found.informed is None


def test_documentation_counts_if_it_was_read_before_the_first_call() -> None:
    found = tool_habits(
        [
            lived(
                (called("read_api", api="mail.send"), "…"),
                (called("call", api="mail.send"), "…"),
                (called("call", api="bank.pay"), "…"),
                (called("read_api", api="bank.pay"), "…"),
                (called("call", api="bank.pay"), "…"),
            )
        ]
    )
    assert found.informed is not None and found.informed.mean == 1 / 2
