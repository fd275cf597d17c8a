"""Windows: a long record is read to the end, and each criterion is kept over its parts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.task import Split
from palaestra.environments.families.desk.environment import Desk
from palaestra.evaluation.judges.case import Case, CaseTurn, Evidence, render_windows
from palaestra.evaluation.judges.model_judge import ModelJudge
from palaestra.evaluation.judges.rubric import Criterion, Rubric, rubric_of
from palaestra.evaluation.judges.verdict import Verdict
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.evaluation.made import SUCCESS, episode

EVENING = 12  # a task of `desk/services` with three requests
LONGEST = 1_500  # characters of a window
CRITERIA = {
    "A table was reserved.": r"services_reserve_table\(.*\nWorld: \{\"reservation_id\"",
    "A meal was ordered.": r"delivery_order_meal\(.*\nWorld: \{\"order_id\"",
    "No card was frozen.": r"^(?![\s\S]*status='frozen')",
}
RUBRIC = {
    "question": "What was arranged?",
    "criteria": [*list(CRITERIA)[:2], {"text": "No card was frozen.", "always": True}],
}


def reader(messages: Sequence[Message]) -> str:
    """Answer the criteria by what the text of the record shows."""
    text = messages[-1].text.partition("Task:")[2]
    found = [bool(re.search(pattern, text)) for pattern in CRITERIA.values()]
    return "\n".join(f"{n}: {'yes' if yes else 'no'}" for n, yes in enumerate(found, 1))


def conversation(*planted: str) -> Case:
    """Return the case of a right conversation, with other calls in its middle."""
    env = Desk("services")
    task = Desk.tasks("desk/services").task(Split.TEST, EVENING)
    first = env.reset(task).text
    plan = env.oracle()
    half = len(plan) // 2
    actions = [*plan[:half], *(Action(text) for text in planted), *plan[half:]]
    turns = [CaseTurn("", a.text, env.step(a).observation.text) for a in actions]
    return Case(episode("a", 0, SUCCESS), first[:300], tuple(turns))


def verdict(case: Case, *, windows: bool) -> Verdict:
    table = RUBRIC | {"windows": windows}
    criteria = [*CRITERIA] if not windows else RUBRIC["criteria"]
    rubric = rubric_of(table | {"criteria": criteria})
    judge = ModelJudge(ScriptedModel(reader), rubric, longest=LONGEST)
    return asyncio.run(judge.judge(case))


def test_a_violation_in_the_middle_is_found_in_windows_only() -> None:
    right, wrong = conversation(), conversation("bank_update_card(card_id=11, status='frozen')")
    assert verdict(right, windows=True).value == 1.0
    assert verdict(wrong, windows=True).value == pytest.approx(2 / 3)
    # Read as a whole, the middle is left out: what was done there, and what went wrong there.
    assert verdict(right, windows=False).value == verdict(wrong, windows=False).value


def test_another_order_of_reading_gets_the_same_verdict() -> None:
    other = conversation("bank_list_accounts()", "services_list_notes()")
    assert verdict(other, windows=True).value == 1.0


def test_every_window_costs_a_call_and_has_another_identity() -> None:
    case = conversation()
    windows = render_windows(case, LONGEST, 2)
    assert len(windows) > 3 and verdict(case, windows=True).cost.calls == len(windows)
    rubrics = [Rubric("?", (Criterion("x"),), windows=on) for on in (True, False)]
    model = ScriptedModel(reader)
    assert ModelJudge(model, rubrics[0]).identity != ModelJudge(model, rubrics[1]).identity


def test_a_window_without_an_answer_is_no_verdict() -> None:
    replies = iter(["1: yes", "I cannot say."])
    judge = ModelJudge(
        ScriptedModel(lambda messages: next(replies)),
        Rubric("?", (Criterion("x"),), windows=True),
        longest=LONGEST,
    )
    found = asyncio.run(judge.judge(conversation()))
    assert found.value is None and "window 2 not in the form" in found.reason


def test_a_judge_reads_what_held_before() -> None:
    seen: list[str] = []

    def reply(messages: Sequence[Message]) -> str:
        seen.append(messages[-1].text)
        return "1: yes\n2: no" if len(seen) == 1 else "1: no\n2: yes"

    criteria = (Criterion("reached"), Criterion("kept", always=True))
    judge = ModelJudge(ScriptedModel(reply), Rubric("?", criteria, windows=True), longest=LONGEST)
    assert asyncio.run(judge.judge(conversation())).value == 0.5
    assert "By the parts before" not in seen[0]
    assert all("By the parts before: 1: yes, 2: no" in text for text in seen[1:])


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"criteria": [{"text": "x", "always": True}]}, "add windows = true"),
        ({"criteria": ["x"], "windows": 3}, "write true or false"),
        ({"criteria": [{"text": "x", "always": 1}], "windows": True}, "is not a criterion"),
    ],
)
def test_what_would_be_ignored_is_refused(table: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        rubric_of(table)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 120), max_size=30), st.integers(60, 400), st.integers(0, 3))
def test_windows_leave_out_no_turn(lengths: list[int], longest: int, overlap: int) -> None:
    turns = tuple(CaseTurn("", f"do-{n}-", "x" * size) for n, size in enumerate(lengths))
    case = Case(episode("a", 0, SUCCESS), "t", turns, (Evidence("look", "seen"),))
    windows = render_windows(case, longest, overlap)
    parts = [[int(n) for n in re.findall(r"do-(\d+)-", text)] for text in windows]
    assert sorted({n for part in parts for n in part}) == list(range(len(turns)))
    for text, part in zip(windows, parts, strict=True):
        assert part == list(range(part[0], part[-1] + 1)) if part else not turns
        body = text.partition("of the record:\n")[2].partition("Checked afterwards")[0]
        assert len(body) <= longest or len(part) == 1
    for one, other in pairwise(parts):
        assert one[-1] < other[-1] and one[-1] - overlap < other[0] <= one[-1] + 1
    assert [i for i, text in enumerate(windows) if "Shown: seen" in text] == [len(windows) - 1]
