"""Readers: their options, and that what they say depends on what they read, as often as stated."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Prompt, Sampling
from palaestra.core.task import Split
from palaestra.core.team_words import ASKED, proposal
from palaestra.environments.families.cases.environment import Cases
from palaestra.environments.registry import tasks
from palaestra.models.scripted.competence import Competence, competence_of, contains
from palaestra.models.scripted.reader import ReaderModel
from palaestra.rollout.guarded_environment import LocalEnvironment

CARE = Cases("care")
CARE.reset(tasks("cases/care").task(Split.TEST, 0))
RIGHT = CARE.answer().text
PARTS = dict(part.split(": ", 1) for part in RIGHT.split("; "))


def replies(options: str, *messages: Message, n: int = 400) -> Counter[str]:
    """Return how often a reader gives each reply to a conversation."""
    reader = ReaderModel(
        DirectAgent(), competence=competence_of(f"reader?{options}")
    ).for_environment(LocalEnvironment(CARE))

    async def ask() -> Counter[str]:
        prompts = (Prompt(messages, None, Sampling(), seed) for seed in range(n))
        return Counter([(await reader.generate(prompt)).text for prompt in prompts])

    return asyncio.run(ask())


def share_right(counts: Counter[str], part: str) -> float:
    found = sum(n for text, n in counts.items() if f"{part}: {PARTS[part]}" in text)
    return found / sum(counts.values())


def test_options() -> None:
    found = competence_of("reader?right=0.3&found=0.9&part=dose&right.visit=0.5&with.You%20are=1")
    assert found == Competence(
        right=0.3, found=0.9, part="dose", rights=(("visit", 0.5),), given=(("You are", 1.0),)
    )
    assert competence_of("reader") == Competence()
    with pytest.raises(UnknownName, match="recal"):
        competence_of("reader?recal=1")
    for name in ("reader?right=2", "reader?right.dose=x", "reader?with.plan=-1"):
        with pytest.raises(InputError, match="must be a number from 0 to 1"):
            competence_of(name)


def test_a_probability_depends_on_what_is_in_the_prompt() -> None:
    one = competence_of("reader?right=0.1&right.visit=0.2&found=0.5&with.dose=0.7&with.dose+x=0.9")
    right = {"dose": "dose: 5 mg", "visit": "visit: Monday"}
    assert one.probability("dose", right, "") == 0.1
    assert one.probability("visit", right, "") == 0.2
    assert one.probability("visit", right, "the visit: Monday.") == 0.5
    assert one.probability("visit", right, "dose: 5 mg") == 0.7
    assert one.probability("visit", right, "x dose: 5 mg") == 0.9


def test_a_text_is_found_by_itself_only() -> None:
    assert contains("a: 5 mg, b", "a: 5 mg") and contains("x\na: 5", "a: 5")
    assert not contains("a: 55", "a: 5") and not contains("aa: 5", "a: 5")


def test_each_part_of_an_action_is_right_by_itself() -> None:
    counts = replies("right=0.8&right.dose=0.3", user("A patient."))
    assert share_right(counts, "dose") == pytest.approx(0.3, abs=0.07)
    assert share_right(counts, "visit") == pytest.approx(0.8, abs=0.06)


def test_parts_that_others_said_are_found() -> None:
    said = f"dosage: dose: {PARTS['dose']}\n{ASKED['act']}"
    counts = replies("right=0.2&found=0.9", user(said))
    assert share_right(counts, "dose") == pytest.approx(0.9, abs=0.05)
    assert share_right(counts, "visit") == pytest.approx(0.2, abs=0.06)


def test_a_reader_with_a_part_says_only_this_one_until_it_decides() -> None:
    counts = replies("right=0.6&part=dose", user(ASKED["talk"]))
    assert share_right(counts, "dose") == pytest.approx(0.6, abs=0.07)
    assert all(text.startswith("dose: ") and ";" not in text for text in counts)
    assert all(len(text.split("; ")) == 5 for text in replies("part=dose", user(ASKED["act"])))
    with pytest.raises(InputError, match="part=price is no part of the right action; give one of"):
        replies("part=price", user(ASKED["talk"]))


def test_a_critic_of_a_part_looks_at_no_other_part() -> None:
    wrong = random.Random(0).choice([d for d in ("400 mg", "500 mg") if d != PARTS["dose"]])
    bad_dose = RIGHT.replace(f"dose: {PARTS['dose']}", f"dose: {wrong}")
    critic = "part={}&recall=0.8&false=0.1&right=1"
    read = user(f"{proposal('author', bad_dose)}\n{ASKED['talk']}")
    doses = replies(critic.format("dose"), read)
    assert doses["accept"] / 400 == pytest.approx(0.2, abs=0.06)
    assert doses[f"wrong: dose; rather dose: {PARTS['dose']}"] == 400 - doses["accept"]
    visits = replies(critic.format("visit"), read)
    assert visits["accept"] / 400 == pytest.approx(0.9, abs=0.05)


def test_after_reviews_only_what_was_called_wrong_is_made_anew() -> None:
    before = "dose: 0 mg; together: maybe; urgency: never; name: X; visit: Y"
    talk = (system("Rules."), user("A patient."), assistant(before))
    counts = replies("right=1", *talk, user(f"dosage: wrong: dose\n{ASKED['act']}"), n=20)
    assert counts == {before.replace("0 mg", PARTS["dose"]): 20}
    assert replies("right=1", *talk, user("critic: wrong: no good"), n=20) == {RIGHT: 20}
    assert replies("right=1", *talk, user("critic: accept"), n=20) == {before: 20}


def test_its_own_words_are_no_evidence_and_those_of_others_are() -> None:
    own = f"dose: {PARTS['dose']}"
    talk = (system("Rules.\nYou are me."), user("A patient."), assistant(own))

    def again(member: str, text: str) -> float:
        seen = f"News.\n{proposal(member, text)}\ncritic: wrong: dose\n{ASKED['act']}"
        return share_right(replies("right=0.1&found=1", *talk, user(seen)), "dose")

    assert again("me", own) == pytest.approx(0.1, abs=0.05)
    assert again("other", own) == again("other", f"{own}; visit: soon") == 1.0


def test_the_expected_actions_are_answers() -> None:
    assert CARE.step(Action(RIGHT)).success
    CARE.reset(tasks("cases/care").task(Split.TEST, 0))
