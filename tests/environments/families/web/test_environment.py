from __future__ import annotations

from collections.abc import Callable

import pytest

from palaestra.core.environment import Action, Transition
from palaestra.core.rare_capabilities import elements_of
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.web.environment import Web
from tests.chosen import mostly_slow

NAMES = ("easy", "medium-challenge", "easy-new", "office-easy", "life-easy:abroad")


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", mostly_slow(NAMES, "easy"))
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    id = f"web/{name}"
    clause(Subject(lambda: registry.make(id), registry.tasks(id), steps=12))


@pytest.mark.slow
@pytest.mark.parametrize("name", Web.names())
def test_the_reference_solves_and_nothing_else_does(name: str) -> None:
    env = registry.make(f"web/{name}")
    for task in registry.tasks(f"web/{name}").take(Split.TEST, 5):
        env.reset(task)
        plan = env.oracle()
        steps = [env.step(action) for action in plan]
        assert all(step.valid for step in steps) and steps[-1].success, env.instructions
        for end in ("answer ''", "give up", "answer 'I cannot do that.'"):
            env.reset(task)
            assert not env.step(Action(end)).success


def begun(name: str = "easy", number: int = 0) -> Web:
    env = Web(name)
    env.reset(registry.tasks(f"web/{name}").task(Split.TRAIN, number))
    return env


def done(env: Web, *lines: str) -> Transition:
    for line in lines:
        step = env.step(Action(line))
        assert step.valid, step.observation.text
    return step


def test_a_message_is_written_by_hand() -> None:
    env = begun()
    done(env, "click 'Mail'", "click 'Send message'", "type 'Subject' 'Code'")
    step = done(env, "type 'Subject' ' word'", "type 'Recipient' 'x' clear")
    assert "textbox 'Subject', value='Code word'" in step.observation.text
    before = env.state_key()
    last = next(one for one in elements_of(env) if one.role == "button")
    shown = done(env, f"click [{last.id}]").observation.text
    assert "There is no mailbox 'x'." in shown and "value='Code word'" in shown
    assert env.state_key() != before


def test_the_expert_does_not_send_a_form_that_changes_nothing() -> None:
    """Two goals of this task put the same message into the trash."""
    env = Web("hard")
    env.reset(registry.tasks("web/hard").task(Split.TEST, 38))
    for _ in range(40):
        step = env.step(env.oracle()[0])
        if step.terminated:
            break
    assert step.success


def test_back_shows_the_page_before_and_forward_the_one_after() -> None:
    env = begun()
    first = done(env, "click 'Bank'").observation.text
    second = done(env, "click 'Contacts'").observation.text
    assert done(env, "back").observation.text == first
    assert done(env, "forward").observation.text == second


def test_enter_sends_a_form() -> None:
    env = begun()
    done(env, "click 'Contacts'")
    search = next(one for one in elements_of(env) if "contacts" in one.name and one.id == "11")
    done(env, f"click [{search.id}]", "type 'Query' 'a' enter")
    assert "search_contacts?query=a" in env._browser.url


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hello", "hello"),
        ("click [999]", "There is no element [999]"),
        ("click 'Weather'", "No element fits 'Weather'"),
        ("click (10, 10)", "There is no element at (10, 10)"),
        ("click #1", "There is no mark #1"),
        ("type 'Bank' 'x'", "[6] link 'Bank' takes no text."),
        ("type 'x'", "No field has the focus"),
        ("select 'Bank' 'x'", "[6] link 'Bank' has no options"),
        ("press 'Control+a'", "'Control+a' does nothing"),
        ("scroll down", "cannot do `scroll down"),
        ("go 'http://elsewhere.example/'", "No site is at 'http://elsewhere.example/'"),
        ("go 'file:///etc/passwd'", "No site is at 'file:///etc/passwd'"),
        ("go 'http://['", "No site is at 'http://['"),
        ("back", "no page to go back to"),
        ("forward", "no page to go forward to"),
    ],
)
def test_a_gesture_that_cannot_be_done_is_answered_in_words(line: str, says: str) -> None:
    env = begun()
    before = env.state_key()
    step = env.step(Action(line))
    assert not step.valid and says in step.observation.text
    assert env.state_key() == before


def test_pages_abroad_say_the_same_in_other_words() -> None:
    texts = {elements_of(begun("easy:abroad", number))[0].name for number in range(12)}
    assert len(texts) > 3
