"""Written procedures as an environment: told whole or step by step, scored by the journey."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.registry import make, spec, tasks
from palaestra.evaluation.attribution.adherence import journey_score
from tests.environments.families.synthesised.test_procedures import RETURNS
from tests.synthesis.made import COUNTY, made


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("procedures") / "made"
    update = {"tasks": 1, "procedures": {"returns.txt": RETURNS}, "conversations": 2}
    made(path, COUNTY.model_copy(update=update))
    return path


def test_no_path_of_a_split_is_in_another(county: Path) -> None:
    env, seen = make(f"procedures/{county}"), dict[Split, set[tuple[str, ...]]]()
    for split in Split:
        every = tasks(env.spec.id).take(split, tasks(env.spec.id).count(split) or 0)
        assert every
        for task in every:
            env.reset(task)
            journey = tuple(str(action.call and action.call.name) for action in env.oracle())
            outcomes = [env.step(action).observation.text for action in env.oracle()]
            seen.setdefault(split, set()).add((*journey, *(o for o in outcomes if ":" not in o)))
    assert sum(map(len, seen.values())) == len(set[tuple[str, ...]]().union(*seen.values()))


def test_a_state_machine_tells_one_step_at_a_time(county: Path) -> None:
    whole, stepwise = make(f"procedures/{county}"), make(f"procedures/{county}:steps")
    task = tasks(whole.spec.id).task(Split.TRAIN, 0)
    assert RETURNS.strip() in whole.reset(task).text
    shown = [stepwise.reset(task).text]
    assert "book_return(order number, reason)" not in shown[0].partition("User:")[2]
    for action in stepwise.oracle()[:-1]:
        shown.append(stepwise.step(action).observation.text)
    assert all(text.count("Your next step: ") == 1 for text in shown)
    assert shown[0].endswith("1. Ask for the order number.")
    assert shown[1].endswith("2. Call find_order(order number).")
    assert stepwise.step(stepwise.oracle()[0]).success
    assert whole.oracle() == (stepwise.reset(task), stepwise.oracle())[1]


@pytest.mark.parametrize("form", ["", ":steps"])
def test_the_expert_covers_every_journey_and_an_erring_one_does_not(
    county: Path, form: str
) -> None:
    id = f"procedures/{county}{form}"
    done = pa.evaluate(id, model="expert", n=2, progress=False, workers=0)
    assert done.success == 1
    env = make(id)
    for episode in done.episodes:
        env.reset(episode.task)
        expected = [action.call for action in env.oracle() if action.call]
        assert journey_score(episode, expected, env.tools) == 1
        assert journey_score(episode, [*expected, expected[0]], env.tools) == 0
    erring = pa.evaluate(id, model="expert?error=1", n=2, progress=False, workers=0)
    assert erring.success == 0


def test_a_folder_without_procedures_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "made", COUNTY.model_copy(update={"worlds": 1, "tasks": 1}))
    with pytest.raises(InputError, match="has no conversations"):
        spec(f"procedures/{tmp_path / 'made'}")


def test_a_task_of_another_split_is_refused(county: Path) -> None:
    env = make(f"procedures/{county}")
    task = tasks(env.spec.id).task(Split.TRAIN, 0)
    env.reset(task)
    assert env.step(Action("I cannot do that.")).success is False
    with pytest.raises(InputError, match="is none of"):
        env.reset(type(task)(task.id, task.environment, task.seed, Split.TEST, "", task.parameters))


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("form", ["", ":steps"])
def test_the_contract_holds(county: Path, form: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"procedures/{county}{form}"))
