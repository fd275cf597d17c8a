"""The code host: Trac, with a wiki, tickets, milestones and the source of a Git repository."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping
from datetime import timedelta
from functools import cache, lru_cache
from gettext import NullTranslations, translation
from pathlib import Path
from shutil import which
from typing import Any, ClassVar
from urllib.parse import quote

from palaestra.browser.sites import FolderSite, Request, Response
from palaestra.core.errors import MissingSystemPart
from palaestra.environments.families.apps.state import Change
from palaestra.environments.families.real_sites import trac_server
from palaestra.environments.families.real_sites.application import (
    BEGIN,
    DatabaseApplication,
    OpenSite,
    Size,
    Variant,
)
from palaestra.environments.families.real_sites.code_project import (
    MILESTONES,
    Project,
    TicketDraft,
    drawn_project,
    user_name,
)
from palaestra.environments.families.real_sites.git_repository import make_repository
from palaestra.environments.families.real_sites.known_answers import KNOWN
from palaestra.environments.families.real_sites.site_database import SiteTemplate, opened

ATTRIBUTE = "code.session_attribute"
STATIC = "/chrome/common/"
RIGHTS = ("MILESTONE_ADMIN", "WIKI_ADMIN", "TICKET_BATCH_MODIFY")
"""What the person may do beside what all developers may."""


class CodeHost(DatabaseApplication):
    """Trac for a project. The person is one of its developers."""

    name = "code"
    unjudged: ClassVar = {
        "auth_cookie": (),
        "cache": (),
        "session": (),
        "session_attribute": (),
        "ticket": ("changetime",),
    }

    def check(self) -> None:
        if which("git") is None:
            raise MissingSystemPart(
                "The site 'code' needs the program git, which is not installed; install it with: "
                "apt install git."
            )
        trac_server.trac_environment()

    def template(self, seed: int) -> SiteTemplate:
        return _template(seed, self.variant)

    def open(self, seed: int) -> CodeSite:
        return CodeSite(self, seed, super().open(seed).database)

    def cookies(self, site: OpenSite) -> Mapping[str, str]:
        return {"trac_auth": _token(site.seed, "sign in"), "trac_form_token": _token(site.seed)}

    def label(self, text: str) -> str:
        catalog = _catalog(self.variant.language)
        found = ((one, catalog.gettext(one)) for one in (text, f"{text}:"))
        return next((there for here, there in found if there != here), text)

    def respond(self, site: OpenSite, request: Request) -> Response:
        if request.path.startswith(STATIC):
            file = request.path.removeprefix(STATIC)
            return _static_files()(Request("GET", f"{self.address}{quote(file)}"))
        return KNOWN.respond(site, request, self._worked_out)

    def _worked_out(self, site: OpenSite, request: Request) -> Response:
        seed = f"{site.seed} {site.now} {request.method} {request.address} {request.body!r}"
        repository = _repository(site.seed, self.variant.size)
        with trac_server.serving(
            site.database.connection, repository, site.now, seed
        ) as environment:
            return trac_server.respond(environment, request)


class CodeSite(OpenSite):
    """One world's copy. Of a ticket's history, what people wrote counts; the rest follows.

    Of what Trac keeps about sessions, the languages that people chose count.
    """

    def changes(self) -> list[Change]:
        return [*super().changes(), *self._chosen_languages()]

    def _chosen_languages(self) -> list[Change]:
        """Return languages that were not chosen at the beginning, or are no longer.

        Not by their ids: Trac writes all attributes of a session anew when one changes.
        """
        columns = (*self.columns[ATTRIBUTE],)
        began = self.database.template.rows[ATTRIBUTE].values()
        before = (dict(zip(columns, row, strict=True)) for row in began)
        chosen = [row for row in before if row["name"] == "language"]
        found = []
        for row in self.rows(ATTRIBUTE, "name = 'language'"):
            values = {name: value for name, value in row.items() if name != "id"}
            if values in chosen:
                chosen.remove(values)
            else:
                found.append(Change(ATTRIBUTE, row["id"], None, row))
        return found + [Change(ATTRIBUTE, 0, one, None) for one in chosen]

    def _judged(self, change: Change) -> Change | None:
        if change.table == "code.ticket_change" and change.kind == "insert":
            written = change.values["field"] == "comment" and change.values["newvalue"]
            return change if written else None
        return super()._judged(change)


def _token(seed: int, purpose: str = "form") -> str:
    return f"{random.Random(f'code {purpose} {seed}').getrandbits(96):024x}"


@cache
def _catalog(language: str) -> NullTranslations:
    """Return Trac's translation of its pages."""
    folder = trac_server.package_folder() / "locale"
    return translation("messages", folder, [language], fallback=True)


@cache
def _static_files() -> FolderSite:
    return FolderSite(trac_server.package_folder() / "htdocs")


@cache
def _repository(seed: int, size: Size) -> Path:
    """Return the repository of a seed; it is made once in a process."""
    folder = trac_server.process_folder() / f"{size}-{seed}.git"
    make_repository(folder, drawn_project(seed, size).commits)
    return folder


# ── the first state ──────────────────────────────────────────────────────────


@lru_cache(32)
def _template(seed: int, variant: Variant) -> SiteTemplate:
    project, connection = drawn_project(seed, variant.size), opened(b"")
    repository = _repository(seed, variant.size)
    with trac_server.serving(connection, repository, BEGIN, f"code {seed}") as environment:
        _tables(environment, connection)
        _people(connection, project, seed, variant.language)
        _planning(environment, project)
        for draft in project.tickets:
            _ticket(environment, draft)
        _wiki(environment, project)
        _changesets(environment)
        connection.execute("DELETE FROM cache")
        connection.commit()
    found = SiteTemplate.of(CodeHost.name, connection)
    connection.close()
    return found


def _tables(environment: Any, connection: sqlite3.Connection) -> None:
    """Make Trac's tables, with what they hold in each project, and that of uploads."""
    from trac.db.api import DatabaseManager
    from trac.db_default import get_data

    from palaestra.environments.families.real_sites.trac_components import UPLOADS

    manager = DatabaseManager(environment)
    manager.init_db()
    connection.execute(UPLOADS)
    manager.insert_into_tables(
        lambda db: [one for one in get_data(db) if one[0] in ("enum", "permission", "report")]
    )


def _people(connection: sqlite3.Connection, project: Project, seed: int, language: str) -> None:
    """Make the users; the first is signed in, and has chosen a language."""
    for person in project.people:
        user = user_name(person)
        seen = int((BEGIN - timedelta(hours=1)).timestamp())
        connection.execute("INSERT INTO session VALUES (?, 1, ?)", (user, seen))
        for attribute, value in (("name", person.name), ("email", person.email)):
            row = (user, attribute, value)
            connection.execute("INSERT INTO session_attribute VALUES (?, 1, ?, ?)", row)
    first = user_name(project.people[0])
    if language != "en":
        chosen = (first, "language", language)
        connection.execute("INSERT INTO session_attribute VALUES (?, 1, ?, ?)", chosen)
    connection.executemany(
        "INSERT INTO permission VALUES (?, ?)", [(first, right) for right in RIGHTS]
    )
    signed_in = (_token(seed, "sign in"), first, "127.0.0.1", int(BEGIN.timestamp()))
    connection.execute("INSERT INTO auth_cookie VALUES (?, ?, ?, ?)", signed_in)
    connection.commit()


def _planning(environment: Any, project: Project) -> None:
    from trac.ticket.model import Component, Milestone

    for component, owner in project.owners.items():
        made = Component(environment)
        made.name, made.owner = component, owner
        made.insert()
    for name, days in MILESTONES.items():
        milestone = Milestone(environment)
        milestone.name = name
        if days is not None:
            milestone.due = BEGIN + timedelta(days=days, hours=18)
            milestone.completed = milestone.due if days < 0 else None
        milestone.insert()


def _ticket(environment: Any, draft: TicketDraft) -> None:
    """Open a ticket, comment on it, and bring it to its status."""
    from trac.ticket.model import Ticket

    ticket = Ticket(environment)
    for field in ("summary", "component", "type", "priority", "milestone", "reporter"):
        ticket[field] = getattr(draft, field)
    ticket["description"] = f"The error {draft.error} is shown. Seen by {draft.reporter}."
    ticket["status"], ticket["owner"], ticket["keywords"] = "new", draft.owner, ""
    ticket.insert(when=draft.at)
    for hours, (author, text) in enumerate(draft.comments, 1):
        ticket.save_changes(author, text, when=draft.at + timedelta(hours=hours))
    if draft.status != "new":
        ticket["status"], ticket["resolution"] = draft.status, draft.resolution
        ticket.save_changes(draft.owner, "", when=draft.at + timedelta(days=2))


def _wiki(environment: Any, project: Project) -> None:
    from trac.wiki.model import WikiPage

    for version in project.pages:
        page = WikiPage(environment, version.name)
        page.text = version.text
        page.save(version.author, version.comment, version.at)


def _changesets(environment: Any) -> None:
    """Let Trac read the history of the repository into its tables."""
    from trac.versioncontrol.api import RepositoryManager

    RepositoryManager(environment).get_repository("").sync()
    # Where the repository lies differs from process to process.
    environment.db_transaction("UPDATE repository SET value = '' WHERE name = 'repository_dir'")
