"""The clock: calls take what the blueprint declares, waiting lets rate limits up."""

from __future__ import annotations

import pytest

from palaestra.core.errors import InputError
from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.events import At
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.stock import stock_app, stock_suite
from palaestra.environments.families.apps.timed.clock_app import timed_suite
from palaestra.environments.families.apps.world import World
from tests.environments.families.apps.small_world import address, mail, template, world


def test_calls_take_the_declared_seconds_and_refused_ones_none() -> None:
    made = world()
    assert made.call("mail.list_messages", {}, MAIN).ok
    assert made.seconds == 5
    assert made.call("supervisor.show_profile", {}, MAIN).ok
    assert not made.call("bank.send_money", {"payee": "x", "amount": 1}, MAIN).ok
    assert made.seconds == 5
    assert made.call(
        "bank.move_money", {"amount": 1, "source": "checking", "target": "savings"}, MAIN
    ).ok
    assert made.seconds == 25


def test_undeclared_reading_takes_no_time_and_a_change_one_second() -> None:
    made = World(stock_suite(), template(), START)
    assert made.call("mail.list_messages", {}, MAIN).ok
    assert made.seconds == 0
    text = {"subject": "Hi", "body": "Hello."}
    assert made.call("mail.send_message", {"recipient": address(2), **text}, MAIN).ok
    assert made.seconds == 1


def test_a_limit_of_changes_a_minute_lets_up_by_waiting() -> None:
    quick = World(stock_suite(), template(), START)
    transfer = {"amount": 1, "source": "checking", "target": "savings"}
    replies = [quick.call("bank.move_money", transfer, MAIN).status for _ in range(21)]
    assert replies == [200] * 20 + [429]
    quick.advance(39)
    assert quick.call("bank.move_money", transfer, MAIN).status == 429  # the first was 59 s ago
    quick.advance(1)
    assert quick.call("bank.move_money", transfer, MAIN).status == 200


def test_the_tools_of_the_clock_tell_the_time_and_wait() -> None:
    made = world([mail("news", At(125))])
    assert made.call("clock.now", {}, MAIN).body == {"now": START}
    assert made.call("clock.wait", {"minutes": 2}, MAIN).body == {"now": "2026-03-02 09:02"}
    reply = made.call("clock.wait_for_notification", {}, MAIN)
    assert reply.body == {"now": "2026-03-02 09:02"} and made.seconds == 125
    (told,) = reply.notifications
    assert told.startswith("[09:02] mail, new message: {") and '"subject": "news 0"' in told
    later = made.call("clock.wait_for_notification", {"minutes": 30}, MAIN)
    assert later.body == {"now": "2026-03-02 09:32"} and later.notifications == ()


@pytest.mark.parametrize("minutes", [0, -5, 1441])
def test_a_wait_that_is_none_or_longer_than_a_day_is_refused(minutes: int) -> None:
    made = world()
    assert made.call("clock.wait", {"minutes": minutes}, MAIN).status == 422
    assert made.seconds == 0


def test_of_many_notifications_the_last_are_told() -> None:
    made = world([mail(f"mail{n}", At(n)) for n in range(14)])
    told = made.call("clock.wait", {"minutes": 1}, MAIN).notifications
    assert told[0] == "[…] 4 more before" and len(told) == 11
    assert '"mail13 0"' in told[-1]


def test_seconds_of_an_api_that_is_not_there_are_refused() -> None:
    bank = stock_app("bank")
    wrong = App(bank.blueprint.model_copy(update={"seconds": {"fly": 3}}), bank.verbs)
    with pytest.raises(
        InputError, match="'fly' takes, which is no API of it; choose from: send_money"
    ):
        _ = wrong.apis


def test_the_timed_apps_are_the_stock_apps_and_the_clock() -> None:
    assert timed_suite().apis.keys() - stock_suite().apis.keys() == {
        "clock.now",
        "clock.wait",
        "clock.wait_for_notification",
    }
    assert timed_suite().empty().columns == stock_suite().empty().columns
