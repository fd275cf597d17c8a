"""The apps that come with palaestra: a blueprint in TOML each, and a module with its verbs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources

from palaestra.core.errors import UnknownName
from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.stock import (
    bank,
    calendar,
    chat,
    documents,
    files,
    knowledge,
    mail,
    notes,
    payments,
    repository,
    shop,
    supervisor,
    tracker,
    travel,
    user,
    wiki,
)

VERBS = {
    "bank": bank.VERBS,
    "calendar": calendar.VERBS,
    "contacts": (),
    "mail": mail.VERBS,
    "supervisor": supervisor.VERBS,
    "chat": chat.VERBS,
    "documents": documents.VERBS,
    "files": files.VERBS,
    "knowledge": knowledge.VERBS,
    "notes": notes.VERBS,
    "payments": payments.VERBS,
    "repository": repository.VERBS,
    "shop": shop.VERBS,
    "tracker": tracker.VERBS,
    "travel": travel.VERBS,
    "user": user.VERBS,
    "wiki": wiki.VERBS,
}
CORE = ("bank", "calendar", "contacts", "mail", "supervisor")
"""The apps of `apps/easy`, `apps/medium` and `apps/hard`, whose tasks must stay what they are."""

LIFE = (*CORE, "chat", "files", "notes", "payments", "shop", "travel")
DOCUMENTS = (*CORE, "files", "documents")
OFFICE = (
    "calendar", "contacts", "mail", "supervisor", "chat", "files", "repository", "tracker", "wiki"
)  # fmt: skip


@cache
def stock_app(name: str) -> App:
    """Return one of the apps that come with palaestra; raises UnknownName."""
    if name not in VERBS:
        raise UnknownName("app", name, list(VERBS))
    text = (resources(__name__) / f"{name}.toml").read_text()
    return App(parse(text, f"{name}.toml"), VERBS[name])


@cache
def stock_suite(names: Sequence[str] = CORE) -> Suite:
    """Return apps that come with palaestra, in one world."""
    return Suite.of([stock_app(name) for name in names])
