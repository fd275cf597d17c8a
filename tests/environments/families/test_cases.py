"""Cases keep the contract, their answers follow from what is shown, and each part counts."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from palaestra.core.environment import Action
from palaestra.core.rare_capabilities import answer_of
from palaestra.core.task import Split
from palaestra.core.team_words import answer_parts
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.cases.case import Part
from palaestra.environments.families.cases.documents import SIGNS
from palaestra.environments.families.cases.environment import CASES, Cases
from palaestra.models.scripted.competence import contains


def begun(name: str, index: int) -> tuple[Cases, str, dict[str, str]]:
    """Return a case, what it shows, and the values of the right answer."""
    world = Cases(name)
    text = world.reset(registry.tasks(f"cases/{name}").task(Split.TRAIN, index)).text
    values = {
        key: part.partition(": ")[2] for key, part in answer_parts(world.answer().text).items()
    }
    return world, text, values


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", CASES)
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"cases/{name}"))


@pytest.mark.parametrize("name", CASES)
def test_each_part_counts_in_any_order(name: str) -> None:
    world, _, values = begun(name, 0)
    first, *rest = values
    given = "; ".join(f"{key.upper()}: {values[key]}." for key in reversed(rest))
    last = world.step(Action(f"{given}; {first}: something else"))
    assert last.reward == world.progress() == len(rest) / len(values)
    assert sorted(last.info["right"]) == sorted(rest) and not last.success


@pytest.mark.parametrize("name", CASES)
def test_other_parts_are_refused_and_random_answers_differ(name: str) -> None:
    world, _, values = begun(name, 1)
    assert not world.step(Action("price: 5")).valid and not world.step(Action("hello")).valid
    sampled = {world.sample_action(random.Random(seed)).text for seed in range(20)}
    assert len(sampled) > 3 and all(answer_parts(text).keys() == values.keys() for text in sampled)


@pytest.mark.parametrize("id", [*(f"cases/{name}" for name in CASES), "stage/scene"])
def test_no_rule_and_no_case_has_a_right_part_in_it(id: str) -> None:
    """Readers take a right part that they read as evidence."""
    world = registry.make(id)
    for index in range(300):
        text = world.reset(registry.tasks(id).task(Split.TEST, index)).text
        for part in answer_parts(answer_of(world).text).values():
            assert not contains(f"{world.instructions}\n{text}", part)


@pytest.mark.parametrize("index", range(12))
def test_a_table_s_answer_can_be_computed_from_it(index: int) -> None:
    _, text, values = begun("table", index)
    row, *quarters = re.findall(r"sales|wages|rent|Q\d", values["cells"])
    (line,) = [line for line in text.splitlines() if line.startswith(f"{row}: ")]
    a, b = (int(re.findall(rf"{quarter} (\d+)", line)[0]) for quarter in quarters)
    computed = {
        "difference": b - a, "sum": a + b, "average": (a + b) / 2,
        "change": (b / a - 1) * 100, "ratio": b / a,
    }  # fmt: skip
    assert float(values["number"]) == pytest.approx(computed[values["operation"]], abs=0.006)
    assert {row, *quarters} <= set(re.findall(r"\w+", text.splitlines()[-1]))


@pytest.mark.parametrize("index", range(12))
def test_a_reply_to_a_patient_follows_from_the_rules(index: int) -> None:
    world, text, values = begun("care", index)
    age, medicine = re.findall(r"(\d+) years", text)[0], re.findall(r"How much (\w+)", text)[0]
    usual = int(re.findall(rf"{medicine} (\d+) mg", world.instructions)[0])
    assert values["dose"] == f"{usual // 2 if int(age) < 12 else usual} mg"
    (other,) = re.findall(rf"{medicine} and (\w+)", world.instructions)
    assert values["together"] == ("stop" if f"take {other}." in text else "fine")
    assert f"I am {values['name']}," in text and f"come on {values['visit']}." in text


@pytest.mark.parametrize("index", range(8))
def test_the_best_partner_has_the_largest_sum_of_the_kinds_asked_for(index: int) -> None:
    _, text, values = begun("partner", index)
    kinds = values["kinds"].split(", ")
    scores = {
        line.partition(":")[0]: {k: int(n) for k, n in re.findall(r"(\w+) (\d+)", line)}
        for line in text.splitlines()[1:]
    }
    assert max(scores, key=lambda name: sum(scores[name][k] for k in kinds)) == values["partner"]
    for number, kind in enumerate(kinds, 1):
        assert max(scores, key=lambda name: scores[name][kind]) == values[f"best-{number}"]


def test_a_paper_shows_each_of_its_limitations() -> None:
    _, text, values = begun("paper", 3)
    assert all(SIGNS[kind][name] in text for kind, name in values.items())


def test_numbers_are_compared_as_numbers() -> None:
    part = Part("1250.50", ("1250.50",), tolerance=0.01)
    assert part.holds("1,250.505") and not part.holds("1250.6") and not part.holds("many")
