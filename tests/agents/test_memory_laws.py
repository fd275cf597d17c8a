"""Memories over a hundred turns: prompts under a budget, and rows equal to what was sent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.registry import AGENTS, make_agent
from palaestra.core.episode import Episode
from palaestra.core.errors import ReplayMismatch
from palaestra.core.model import Sampling
from palaestra.core.outcome import Owner
from palaestra.learning.data.rows import rows_of
from tests.agents.long_road import TURNS, Dice, LongRoad
from tests.agents.test_laws import NEEDED
from tests.core.small import Journal, run_episode

MEMORIES = [NEEDED.get(name, name) for name in sorted(AGENTS) if ".memory." in AGENTS[name]]
REPLY = 8  # tokens of a reply
BOUNDED = {  # agents whose prompts have a bound that no number of turns moves
    "summary?budget=700&length=40": 700,
    "direct?history=3": 700,
    "diff?history=3": 900,
    "constant": 700,
    "subtasks?limit=6": 1200,
    "recall?k=2&history=2": 900,
    "places?history=2&limit=4": 1000,
    "rules?history=2": 700,
    "skills?history=2": 700,
    "toolbox?history=2": 1100,
}


def roll_out(name: str, seed: int = 0, turns: int = TURNS, **more: object) -> tuple[Episode, Dice]:
    model, world = Dice(), LongRoad(turns, seed)
    sampling = Sampling(max_tokens=REPLY)
    agent = make_agent(name)
    return run_episode(agent, model, world, seed=seed, sampling=sampling, **more), model  # type: ignore[arg-type]


def check_rows(episode: Episode, model: Dice) -> None:
    """Each prompt stands in a row as it was sent, and each sampled token is trained once."""
    rows = rows_of(episode, "dice")
    trained: dict[int, tuple[int, ...]] = {}
    before: dict[int, tuple[int, ...]] = {}
    for row in rows:
        for number in sorted(set(row.calls) - {-1}):
            places = [place for place, call in enumerate(row.calls) if call == number]
            assert number not in trained and places == list(range(places[0], places[-1] + 1))
            trained[number] = tuple(row.tokens[places[0] : places[-1] + 1])
            before[number] = tuple(row.tokens[: places[0]])
            assert all(row.mask[place] for place in places)
    assert [(before[n], trained[n]) for n in range(len(model.sent))] == model.sent
    assert sum(row.trained for row in rows) == sum(len(output) for _, output in model.sent)


@pytest.mark.parametrize("name", BOUNDED)
def test_a_hundred_turns_keep_every_prompt_under_its_budget(name: str) -> None:
    episode, model = roll_out(name)
    assert episode.outcome.solved and len(episode.steps) == TURNS
    assert max(len(prompt) for prompt, _ in model.sent) <= BOUNDED[name]
    check_rows(episode, model)


def test_a_chat_that_forgets_nothing_would_break_those_budgets() -> None:
    episode, model = roll_out("direct")
    assert len(model.sent[-1][0]) > max(BOUNDED.values())
    check_rows(episode, model)


@given(
    budget=st.integers(350, 1200),
    length=st.integers(1, 60),
    seed=st.integers(0, 50),
    turns=st.integers(1, 40),
)
@settings(max_examples=10, deadline=None)
def test_summaries_hold_any_budget_that_holds_the_task(
    budget: int, length: int, seed: int, turns: int
) -> None:
    episode, model = roll_out(f"summary?budget={budget}&length={length}", seed, turns)
    assert all(len(prompt) <= budget for prompt, _ in model.sent)
    assert episode.outcome.solved or str(episode.outcome).startswith("error(budget")
    if model.sent:
        check_rows(episode, model)


def test_a_budget_too_small_for_the_task_is_the_agents_own_error() -> None:
    episode, model = roll_out("summary?budget=50")
    assert (episode.outcome.kind, episode.outcome.owner) == ("budget", Owner.AGENT)
    assert "give a larger budget" in episode.outcome.detail and not model.sent


@pytest.mark.parametrize("name", MEMORIES)
@given(seed=st.integers(0, 30), turns=st.integers(1, 12))
@settings(max_examples=3, deadline=None)
def test_every_memory_trains_on_what_it_sent(name: str, seed: int, turns: int) -> None:
    episode, model = roll_out(name, seed, turns)
    assert episode.outcome.solved
    check_rows(episode, model)


@pytest.mark.parametrize("name", [*MEMORIES, "summary?budget=400&length=20"])
@pytest.mark.parametrize("kept", [1, 4, 9])
def test_an_episode_that_was_cut_off_is_run_again_as_it_was(name: str, kept: int) -> None:
    journal = Journal()
    whole, _ = roll_out(name, turns=8, journal=journal)
    again, model = roll_out(name, turns=8, past=journal.events[:kept])
    assert (again.calls, again.outcome) == (whole.calls, whole.outcome)
    asked = sum(hasattr(event, "completion") for event in journal.events[:kept])
    assert len(model.sent) == len(whole.calls) - asked  # what is recorded is not asked again


def test_the_record_of_another_memory_is_refused() -> None:
    journal = Journal()
    roll_out("constant", turns=4, journal=journal)
    with pytest.raises(ReplayMismatch):
        roll_out("subtasks", turns=4, past=journal.events)
