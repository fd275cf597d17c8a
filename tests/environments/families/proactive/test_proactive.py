"""Streams keep the contract; labels follow from what the person wants; constants pass no stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from palaestra.core.environment import Action, Transition
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.state import difference
from palaestra.environments.families.apps.surfaces import tool_name
from palaestra.environments.families.proactive.activity import NO, YES, stream
from palaestra.environments.families.proactive.environment import DECLINED, Proactive
from palaestra.evaluation.statistics.offers import offer_scores

SILENCE = Action("stay_silent()")


def task_of(name: str, number: int) -> Task:
    return Proactive.tasks(f"proactive/{name}").task(Split.TEST, number)


def begun(name: str, number: int) -> Proactive:
    env = Proactive(name)
    env.reset(task_of(name, number))
    return env


def silent(env: Proactive) -> Iterator[Transition]:
    """Yield the steps of an agent that never offers anything."""
    while not (step := env.step(SILENCE)).terminated:
        yield step
    yield step


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "name",
    [
        "core",
        "core:moment",
        pytest.param("life", marks=pytest.mark.slow),
        pytest.param("life:moment", marks=pytest.mark.slow),
    ],
)
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"proactive/{name}", steps=8, per_split=1))


@pytest.mark.parametrize(
    "name", ["core", "core:moment", pytest.param("life", marks=pytest.mark.slow)]
)
def test_the_oracle_offers_all_that_is_wanted_and_nothing_else(name: str) -> None:
    env = Proactive(name)
    for number in range(6):
        env.reset(task_of(name, number))
        steps = [env.step(action) for action in env.oracle()]
        assert steps[-1].success and env.progress() == 1
        scores = offer_scores(step.info for step in steps)
        assert scores.false_alarms is None or scores.false_alarms.mean == 0
        assert scores.recall is None or scores.recall.mean == 1


def test_silence_and_offers_for_every_reminder_pass_no_stream() -> None:
    for number in range(6):
        assert not [*silent(begun("core", number))][-1].success
        env, declined = begun("core", number), 0
        for errand in env.errands:
            world = env.world
            while not world.schedule.of(errand.decided).times:
                env.step(SILENCE)
            offer = errand.offer(world)
            assert offer is not None
            arguments = ", ".join(f"{name}={value!r}" for name, value in offer.arguments.items())
            step = env.step(Action(f"{tool_name(offer.api)}({arguments})"))
            declined += step.info["offer"] == "declined"
            if step.terminated:
                break
        assert declined and not [*silent(env)][-1].success


def test_silence_and_the_offer_that_fits_pass_one_of_two_twins() -> None:
    for number in range(0, 8, 2):
        pair = [begun("core:moment", n) for n in (number, number + 1)]
        wanted = [env.oracle()[0] for env in pair]
        assert (SILENCE.text in [a.text for a in wanted]) and wanted[0].text != wanted[1].text
        [offer] = [action for action in wanted if action.text != SILENCE.text]
        for always in (SILENCE, offer):
            passed = [begun("core:moment", n).step(always).success for n in (number, number + 1)]
            assert sorted(passed) == [False, True]


def test_twins_differ_in_what_the_person_answers_alone() -> None:
    one, other = begun("core", 6), begun("core", 7)
    assert difference(one.world.state, other.world.state) == []
    assert [tool.name for tool in one.tools] == [tool.name for tool in other.tools]
    assert [errand.wanted for errand in one.errands] == [not e.wanted for e in other.errands]
    texts = [
        one_env.reset(task_of("core:moment", number)).text
        for number, one_env in ((6, Proactive("core:moment")), (7, Proactive("core:moment")))
    ]
    for said in (*YES, *NO):
        texts = [text.replace(said, "…") for text in texts]
    assert texts[0] == texts[1]


def test_a_declined_offer_changes_nothing_and_costs_success() -> None:
    env = begun("core", 0)
    before = env.world.state.key()
    plan = env.oracle()
    at = next(n for n, action in enumerate(plan) if action.text != SILENCE.text)
    step = env.step(plan[at])  # before the person has said that they are going to do it
    assert step.observation.text == DECLINED and step.info == {"wanted": False, "offer": "declined"}
    assert env.world.state.key() == before
    assert env.oracle() == []
    last = [env.step(action) for action in plan][-1]
    assert last.terminated and not last.success and last.info["missed"] == 0


def test_the_person_does_what_nobody_offers_and_not_what_was_accepted() -> None:
    made = stream("core", task_of("core", 0).seed)
    wanted = [errand for errand in made.errands if errand.wanted]
    env = begun("core", 0)
    last = [*silent(env)][-1]
    assert last.info["missed"] == len(wanted) and last.info["rows"] == []
    helped = begun("core", 0)
    last = [helped.step(action) for action in helped.oracle()][-1]
    assert last.info["missed"] == 0 and last.info["accepted"] == len(wanted)
    assert len(last.info["rows"]) >= len(wanted)
    theirs = [row for row in env.world.state.rows("bank.payment") if row["owner"] == MAIN]
    mine = [row for row in helped.world.state.rows("bank.payment") if row["owner"] == MAIN]
    assert len(theirs) == len(mine)
