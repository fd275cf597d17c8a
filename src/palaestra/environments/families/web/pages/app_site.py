"""A compiled app as a web site: every API is a page, and a page with a form makes the call.

    /                                what there is to see and to do
    /list_messages?folder=inbox      rows, and a form to ask for others
    /show_message?message_id=12      one row, and what can be done with it
    /reply_message?message_id=12     a form; sending it makes the call

The state changes only by calls of the app's APIs, so what is true of tasks with tools (verdicts,
limits, time, notifications) is true of tasks on pages, too. A page belongs to one person, who is
signed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.compiler.api import Api, Caller
from palaestra.environments.families.apps.compiler.blueprint import Column, Entity, qualified
from palaestra.environments.families.apps.compiler.endpoints import PAGING
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.web.pages.forms import (
    Forms,
    asked,
    changed,
    field_text,
    human,
    is_box,
    text_of,
)
from palaestra.environments.families.web.pages.look import Look

PEOPLE = "supervisor.person"
HIDDEN = ("login",)  # who sees a page is signed in
WAYS = ("list", "search", "show", "create", "update", "delete")
FOUND, REFUSED_METHOD = 200, 405
SEE_OTHER = 303


@dataclass(frozen=True, slots=True)
class Page:
    """What a site answers."""

    status: int  # as in HTTP
    html: str = ""
    location: str = ""  # of another page that is to be shown instead


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of a row, as it is shown."""

    text: str
    link: str = ""


class AppSite:
    """The site of one app, for one person."""

    def __init__(
        self, world: World, app: App, person: int, look: Look, others: Sequence[tuple[str, str]]
    ):
        """Make a site.

        Args:
            world: where calls are made.
            app: one of its apps.
            person: who is signed in.
            look: how the pages look.
            others: labels and addresses of sites to which every page has a link.
        """
        self.world, self.app, self.person, self.look = world, app, person, look
        self.others = others
        self.forms = Forms(look.words, _long_texts(app))

    def get(self, path: str, query: Mapping[str, str]) -> Page:
        """Return the page at a path, such as "/list_messages"."""
        name = path.strip("/")
        if not name:
            return self._rendered("home.html", human(self.app.name), done="done" in query)
        api = self._apis.get(name)
        if api is None:
            return self._missing(path)
        if api.changes:
            return self._form(api, query)
        needed = api.parameters.get("required", ())
        if any(not query.get(key) for key in needed) and not _shows(api):
            return self._rendered("rows.html", self.label(api), **self._question(api, query))
        return self._found(api, query)

    def post(self, path: str, sent: Mapping[str, str]) -> Page:
        """Send the form of the page at a path."""
        api = self._apis.get(path.strip("/"))
        if api is None:
            return self._missing(path)
        if not api.changes:
            return self._refused(REFUSED_METHOD, f"{self.label(api)} takes no form.")
        unticked = {
            name: "" for name, schema in api.parameters["properties"].items() if is_box(schema)
        }
        sent = {**unticked, **sent}
        arguments = changed(api.parameters, sent)
        row = self._row_of(api, sent) if api.name.startswith("update_") else None
        if row is not None:
            differs = _differing(sent, row)
            arguments = {name: value for name, value in arguments.items() if name in differs}
        reply = self.world.call(api.full_name, arguments, self.person)
        if not reply.ok:
            return self._form(api, sent, reply.body["error"], reply.status)
        return Page(SEE_OTHER, location=self._after(api, sent, reply.body))

    def label(self, api: Api) -> str:
        """Return what a link or a button for an API is called."""
        way, _, noun = api.name.partition("_")
        if way in WAYS and self._entity_of(api) is not None and way in self.look.words:
            return self.look.words[way].format(human(noun) if way == "list" else noun)
        return human(api.name)

    # ── pages ────────────────────────────────────────────────────────────────

    def _found(self, api: Api, query: Mapping[str, str]) -> Page:
        """Return the page of what an API answers that only reads."""
        reply = self.world.call(api.full_name, asked(api.parameters, query), self.person)
        title = self.label(api)
        if not reply.ok:
            question = {} if _shows(api) else self._question(api, query)
            return self._rendered(
                "rows.html", title, reply.status, error=reply.body["error"], **question
            )
        entity = self._entity_of(api)
        done = {"done": "done" in query}
        if _shows(api) and entity is not None:
            actions = [
                (self.label(one), link) for one, link in self._actions(entity[0], reply.body)
            ]
            row = self._cells(entity[1], reply.body)
            return self._rendered("row.html", title, row=row, actions=actions, **done)
        rows = next((v for v in reply.body.values() if isinstance(v, list)), None)
        if rows is None:
            return self._rendered("row.html", title, row=_plain(reply.body), actions=(), **done)
        shown = [self._listed(*entity, row) if entity else _plain(row) for row in rows]
        question = self._question(api, query)
        return self._rendered(
            "rows.html", title, rows=shown, pages=_pages(api, query, reply.body), **question, **done
        )

    def _form(
        self, api: Api, sent: Mapping[str, str], error: str = "", status: int = FOUND
    ) -> Page:
        """Return the page with the form of an API that changes something."""
        values: dict[str, Any] = dict(self._row_of(api, sent) or {}) | dict(sent)
        subject = subject_of(self.app, api)
        if subject is not None and not str(values.get(subject, "")).isdecimal():
            subject = None  # no row was named: the form asks for its number
        fields = [
            field for field in self.forms.changing(api.parameters, values) if field.name != subject
        ]
        hidden = {} if subject is None else {subject: values[subject]}
        return self._rendered(
            "form.html", self.label(api), status, api=api.name, fields=fields, hidden=hidden,
            error=error, danger=api.name.startswith("delete_"),
        )  # fmt: skip

    def _question(self, api: Api, query: Mapping[str, str]) -> dict[str, Any]:
        properties = {k: v for k, v in api.parameters["properties"].items() if k not in PAGING}
        form = self.forms.asking({**api.parameters, "properties": properties}, query)
        return {"api": api.name, "fields": form}

    def _missing(self, path: str) -> Page:
        return self._refused(404, f"There is no page {path}.")

    def _refused(self, status: int, error: str) -> Page:
        return self._rendered("rows.html", human(self.app.name), status, error=error)

    def _rendered(self, template: str, title: str, status: int = FOUND, /, **facts: Any) -> Page:
        """Return a page; what happened meanwhile stands above it."""
        facts = {"error": "", "done": False, "rows": None, "fields": (), "pages": ()} | facts
        told = self.world.take_notifications()
        html = (
            _templates()
            .get_template(template)
            .render(
                site=self, look=self.look, words=self.look.words, title=title, told=told, **facts
            )
        )
        return Page(status, html)

    @property
    def menu(self) -> list[tuple[str, str]]:
        """What can be seen and done without a row: labels and links."""
        return [
            (self.label(api), f"/{api.name}")
            for api in self._apis.values()
            if subject_of(self.app, api) is None
        ]

    # ── rows ─────────────────────────────────────────────────────────────────

    @cached_property
    def _apis(self) -> dict[str, Api]:
        return {name: api for name, api in self.app.apis.items() if name not in HIDDEN}

    def _entity_of(self, api: Api) -> tuple[str, Entity] | None:
        """Return the entity about whose rows an API is, if it was compiled from one."""
        way, _, noun = api.name.partition("_")
        entities = self.app.blueprint.entities
        for name in (noun, noun.removesuffix("s")):
            if way in WAYS and name in entities:
                return name, entities[name]
        return None

    def _actions(self, entity: str, row: Mapping[str, Any]) -> list[tuple[Api, str]]:
        """Return what can be done with a row, and the links to it."""
        key = f"{entity}_id"
        return [
            (api, f"/{api.name}?{urlencode({key: row['id']})}")
            for api in self._apis.values()
            if subject_of(self.app, api) == key and not _shows(api)
        ]

    def _row_of(self, api: Api, sent: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the row that an update is about, as the person sees it."""
        entity, key = self._entity_of(api), subject_of(self.app, api)
        if entity is None or key is None or not sent.get(key, "").isdecimal():
            return None
        return self._readable(entity[0], int(sent[key]))

    def _readable(self, entity: str, id: int) -> Mapping[str, Any] | None:
        """Return a row, if the person may read it."""
        caller = Caller(self.world.state, self.world.suite.blueprints, self.person, self.world.now)
        table = qualified(self.app.name, entity)
        condition, values = caller.readable(table)
        found = self.world.state.rows(table, f"id = ? AND {condition}", [id, *values])
        return found[0] if found else None

    def _link(self, entity: str, row: Mapping[str, Any]) -> str:
        show = f"show_{entity}"
        return f"/{show}?{urlencode({f'{entity}_id': row['id']})}" if show in self._apis else ""

    def _listed(self, name: str, entity: Entity, row: Mapping[str, Any]) -> dict[str, Cell]:
        """Return a row of a list: its number and what it is found by link to its page."""
        cells, link = self._cells(entity, row), self._link(name, row)
        for key in ("id", *entity.search[:1]):
            if key in row:
                cells[human(key)] = Cell(cells[human(key)].text, link)
        return cells

    def _cells(self, entity: Entity, row: Mapping[str, Any]) -> dict[str, Cell]:
        return {
            human(name): self._cell(entity.fields.get(name), value) for name, value in row.items()
        }

    def _cell(self, column: Column | None, value: Any) -> Cell:
        if isinstance(value, bool):
            return Cell(self.look.words["yes" if value else "no"])
        if value is None:
            return Cell("–")
        if column is not None and column.type == "person":
            person = self.world.state.get(PEOPLE, int(value))
            return Cell(str(person["name"]) if person else text_of(value))
        if column is not None and column.refers and "." not in column.refers:
            seen = self._readable(column.refers, value)
            return Cell(f"#{value}", "" if seen is None else self._link(column.refers, seen))
        return Cell(text_of(value))

    def _after(self, api: Api, sent: Mapping[str, str], body: Any) -> str:
        """Return where a form leads that was sent: to the row that it was about, or home."""
        entity = self._entity_of(api)
        if entity is not None and (link := self._link(entity[0], {"id": body.get("id", 0)})):
            return f"{link}&done=1" if "id" in body else "/?done=1"
        key = subject_of(self.app, api)
        if key is not None and (link := self._link(key.removesuffix("_id"), {"id": sent[key]})):
            return f"{link}&done=1"
        return "/?done=1"


def start_page(look: Look, apps: Mapping[str, App]) -> Page:
    """Return a page with a link to the site of each app, by their hosts."""
    rows = [(human(app.name), f"http://{host}/", app.blueprint.about) for host, app in apps.items()]
    template = _templates().get_template("start.html")
    return Page(FOUND, template.render(look=look, words=look.words, rows=rows))


def subject_of(app: App, api: Api) -> str | None:
    """Return the argument of an API that names a row of its app: the first; None if none does."""
    required = api.parameters.get("required", ())
    names = (f"{name}_id" for name in app.blueprint.entities)
    return next((name for name in names if name in required), None)


def _shows(api: Api) -> bool:
    return api.name.startswith("show_") and bool(api.parameters["properties"])


def _differing(sent: Mapping[str, str], row: Mapping[str, Any]) -> dict[str, str]:
    """Return what of a form differs from the row that it was filled with, and the row's number."""
    held = {name: field_text(value) for name, value in row.items()}
    return {
        name: text for name, text in sent.items() if text.replace("\r\n", "\n") != held.get(name)
    }


def _pages(
    api: Api, query: Mapping[str, str], body: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """Return the links to the pages of rows before and after this one, by the site's word."""
    if "pages" not in body:
        return ()
    links = []
    for word, page in (("previous", body["page"] - 1), ("next", body["page"] + 1)):
        if 1 <= page <= body["pages"]:
            links.append((word, f"/{api.name}?{urlencode({**query, 'page': page})}"))
    return tuple(links)


def _plain(row: Any) -> dict[str, Cell]:
    """Return what a verb answers as it is shown."""
    found = row if isinstance(row, dict) else {"": row}
    return {human(name): Cell(text_of(value)) for name, value in found.items()}


def _long_texts(app: App) -> frozenset[str]:
    return frozenset(
        name
        for entity in app.blueprint.entities.values()
        for name, column in entity.fields.items()
        if column.type == "text" and column.most is None
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
