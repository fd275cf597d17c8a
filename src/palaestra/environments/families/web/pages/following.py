"""How somebody makes a call on an app's pages: what they open, fill in and send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.web.pages.app_site import subject_of
from palaestra.environments.families.web.pages.forms import field_text, text_of


@dataclass(frozen=True, slots=True)
class Open:
    """Go to a page: by a link to it, or by its address."""

    path: str  # with the query


@dataclass(frozen=True, slots=True)
class Fill:
    """Give a field of the page's form that changes something a value."""

    field: str
    text: str  # what is sent: of a box "on" or nothing


@dataclass(frozen=True, slots=True)
class Send:
    """Send the page's form that changes something."""


Step = Open | Fill | Send


def steps_of(app: App, api: str, arguments: Mapping[str, Any]) -> list[Step]:
    """Return the steps that make a call of an app's API.

    Args:
        app: the app.
        api: the name of the API, without the app's.
        arguments: of the call.
    """
    made: Api = app.apis[api]
    texts = {name: field_text(value) for name, value in arguments.items()}
    if not made.changes:
        asked = {k: text_of(v) for k, v in arguments.items()}
        return [Open(f"/{api}?{urlencode(asked)}" if asked else f"/{api}")]
    subject = subject_of(app, made)
    known = {subject: texts.pop(subject)} if subject in texts else {}
    opened = Open(f"/{api}?{urlencode(known)}" if known else f"/{api}")
    return [opened, *(Fill(name, text) for name, text in texts.items()), Send()]
