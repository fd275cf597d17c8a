"""Windows: which moments of a change are in time."""

from __future__ import annotations

import pytest

from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.windows import Window
from palaestra.environments.families.apps.events import At
from palaestra.environments.families.apps.world import World
from tests.environments.families.apps.small_world import address, mail, world


def send(made: World, to: int = 3) -> None:
    text = {"subject": "Hi", "body": "Hello."}
    assert made.call("mail.send_message", {"recipient": address(to), **text}, MAIN).ok


@pytest.mark.parametrize(
    ("second", "met"), [(0, False), (59, False), (60, True), (300, True), (301, False)]
)
def test_a_change_counts_from_the_second_in_which_its_call_begins(second: int, met: bool) -> None:
    made = world()
    made.advance(second)
    send(made)
    assert Window("mail", 60, 300).met(made) is met
    assert Window("calendar", 60).met(made)


def test_without_a_change_there_is_time_until_the_deadline() -> None:
    made = world()
    made.advance(300)
    assert Window("mail", latest=300).met(made)
    made.advance(1)
    assert not Window("mail", latest=300).met(made)
    assert Window("mail").met(made)


def test_every_change_must_be_in_time_and_reading_may_be_at_any_time() -> None:
    made = world()
    made.call("mail.list_messages", {}, MAIN)
    made.advance(60)
    send(made)
    window = Window("mail", 60, 100)
    assert window.met(made)
    made.advance(100)
    send(made)
    assert not window.met(made)


def test_seconds_may_count_from_an_event_before_which_nothing_is_in_time() -> None:
    window = Window("mail", latest=60, since="answer")
    made, hasty = world([mail("answer", At(100))]), world([mail("answer", At(100))])
    send(hasty)
    assert not window.met(hasty)
    hasty.advance(200)
    assert not window.met(hasty)
    assert window.met(made)
    made.advance(160)
    send(made)
    assert window.met(made)


def test_only_calls_with_the_named_arguments_may_count() -> None:
    window = Window("mail", latest=10, arguments={"recipient": address(3)})
    made = world()
    made.advance(11)
    send(made, to=4)
    assert not window.met(made)  # the deadline has passed
    early = world()
    send(early)
    early.advance(60)
    send(early, to=4)
    assert window.met(early)
