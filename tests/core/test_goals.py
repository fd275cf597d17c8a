"""Goals in texts: stated in a line of their own, and replaced there."""

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.goals import restated, states_goal, with_goal, without_goal

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85"))
GOALS = st.from_regex(r"[a-z][a-z0-9 ,.\\]*[a-z]", fullmatch=True)


@given(TEXTS.filter(lambda text: not states_goal(text)), GOALS, GOALS)
def test_a_stated_goal_can_be_replaced_and_removed(text: str, one: str, other: str) -> None:
    assert states_goal(with_goal(text, one))
    assert restated(with_goal(text, one), other) == with_goal(text, other)
    assert without_goal(with_goal(text, one)) == text


def test_only_a_line_of_its_own_is_a_goal() -> None:
    for text in ("The Goal: x.", "Goal: x", "goal: x.", "Goal: ."):
        assert not states_goal(text) and restated(text, "y") == text == without_goal(text)


def test_what_stands_around_the_goal_stays() -> None:
    text = "Rules.\nGoal: row 1.\nYou are here.\nGoal: row 2."
    assert restated(text, "row 3") == "Rules.\nGoal: row 3.\nYou are here.\nGoal: row 3."
    assert without_goal(text) == "Rules.\nYou are here.\n"
