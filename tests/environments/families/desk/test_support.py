"""The support desk: what its articles state decides, and faults of the articles matter."""

from __future__ import annotations

from palaestra.core.environment import Action
from tests.environments.families.desk.test_desk import begun, number_of


def test_both_questions_must_be_answered() -> None:
    env = begun("support", number_of("support", "arrival"))
    plan = env.oracle()
    answers = [at for at, action in enumerate(plan) if "The answer to your question" in action.text]
    assert len(answers) == len(env.drawn.scenario.answers) == 2
    for silent in answers:
        env = begun("support", number_of("support", "arrival"))
        said = [Action("That is done. Is there anything else?") if at == silent else action
                for at, action in enumerate(plan)]  # fmt: skip
        last = [env.step(action) for action in said][-1]
        assert (last.info["effect"], last.info["reply"], last.success) == (True, False, False)


def test_the_order_of_answers_is_free() -> None:
    env = begun("support", number_of("support", "arrival"))
    first, second = env.drawn.scenario.answers
    plan = [
        Action(f"Its warranty is {second} months; it comes in {first} days. Anything else?"),
        Action("That is done. Is there anything else?"),
    ]
    assert [env.step(action) for action in plan][-1].success


def test_an_outdated_article_does_not_count() -> None:
    """Permit a return by two articles of which one has ended, and hand over if none has."""
    one, other = (
        begun("support", number_of("support", "contradicted", permitted=permitted))
        for permitted in (True, False)
    )
    assert any("support_return_order" in action.text for action in one.oracle())
    assert any("support_hand_over" in action.text for action in other.oracle())
