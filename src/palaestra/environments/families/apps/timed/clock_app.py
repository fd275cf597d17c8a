"""The clock: an app by which an agent reads the time and waits, and apps whose calls take time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import Blueprint
from palaestra.environments.families.apps.compiler.verbs import reading
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.stock import stock_suite

CLOCK = "clock"
MINUTE = 60
LONGEST = 24 * 60  # minutes of one wait
READING, CHANGING = 5, 20  # seconds of a call of the apps with time


def _pass(call: Caller, minutes: int, until_notified: bool) -> Row:
    if not 1 <= minutes <= LONGEST:
        raise ApiError(422, f"A wait has 1 to {LONGEST} minutes.")
    assert call.advance is not None, "only a world can let time pass"
    return {"now": call.advance(minutes * MINUTE, until_notified)}


@reading
def now(call: Caller) -> Row:
    """Tell the time.

    Returns:
        now: string
    """
    return {"now": call.now}


@reading
def wait(call: Caller, minutes: int) -> Row:
    """Wait for some minutes.

    Returns:
        now: string
    """
    return _pass(call, minutes, until_notified=False)


@reading
def wait_for_notification(call: Caller, minutes: int = 60) -> Row:
    """Wait until something happens that concerns you.

    Args:
        minutes: the longest wait

    Returns:
        now: string
    """
    return _pass(call, minutes, until_notified=True)


def clock() -> App:
    """Return the app; it knows nobody and has no rows."""
    blueprint = Blueprint(
        app=CLOCK, about="The time, and waiting.", entities={}, private=False, version=1
    )
    return App(blueprint, (now, wait, wait_for_notification))


@cache
def timed_suite() -> Suite:
    """Return the clock and the stock apps of `core`, whose calls take time."""
    return slow_suite(stock_suite().apps.values())


def slow_suite(apps: Iterable[App]) -> Suite:
    """Return the clock and some apps, whose calls take time; signing in takes none."""
    return Suite.of([*map(_slow, apps), clock()])


def _slow(app: App) -> App:
    """Return a private app with calls that take time; another one as it is."""
    if not app.blueprint.private:
        return app
    seconds = {
        name: CHANGING if api.changes else READING
        for name, api in app.apis.items()
        if name != "login"
    }
    return App(app.blueprint.model_copy(update={"seconds": seconds}), app.verbs)
