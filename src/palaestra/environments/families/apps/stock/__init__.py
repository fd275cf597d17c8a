"""The apps that come with palaestra: a blueprint in TOML each, and a module with its verbs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from palaestra.core.errors import UnknownName
from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.stock import bank, calendar, mail, supervisor

VERBS = {
    "bank": bank.VERBS,
    "calendar": calendar.VERBS,
    "contacts": (),
    "mail": mail.VERBS,
    "supervisor": supervisor.VERBS,
}


@cache
def stock_app(name: str) -> App:
    """Return one of the apps that come with palaestra; raises UnknownName."""
    if name not in VERBS:
        raise UnknownName("app", name, list(VERBS))
    text = (files(__name__) / f"{name}.toml").read_text()
    return App(parse(text, f"{name}.toml"), VERBS[name])


@cache
def stock_suite(names: Sequence[str] = tuple(VERBS)) -> Suite:
    """Return apps that come with palaestra, in one world."""
    return Suite.of([stock_app(name) for name in names])
