"""Django applications as sites, all in one process: who answers, and with which database.

Django has one configuration in a process, so it has the tables and templates of all our
applications; each site has addresses and middleware of its own. Requests are answered in one
thread of their own, because Django refuses its database in a thread with an event loop.
"""

from __future__ import annotations

import mimetypes
import os
import random
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites import request_clock, wsgi
from palaestra.environments.families.real_sites.application import (
    BEGIN,
    DatabaseApplication,
    OpenSite,
)
from palaestra.environments.families.real_sites.django_settings import MIDDLEWARE, configure
from palaestra.environments.families.real_sites.known_answers import KNOWN
from palaestra.environments.families.real_sites.pictures import drawn_picture
from palaestra.environments.families.real_sites.site_database import SiteTemplate, opened

Found = TypeVar("Found")
SESSION = "sessionid"  # the cookie of whoever is signed in
UPLOADS = "CREATE TABLE uploaded_file (name TEXT PRIMARY KEY, content BLOB NOT NULL)"
TEMPLATES = 32  # worlds of an application that are kept


class DjangoApplication(DatabaseApplication):
    """An application of Django."""

    middleware: ClassVar[tuple[str, ...]]  # beside what all have
    unjudged: ClassVar[Mapping[str, Collection[str]]] = {
        "django_session": (),
        "auth_user": ("last_login",),
    }

    @abstractmethod
    def urls(self) -> list[Any]:
        """Return the patterns of its addresses."""

    @abstractmethod
    def populate(self, rng: random.Random) -> int:
        """Make a world's rows with Django's models; return the id of the user to sign in."""

    def check(self) -> None:
        in_thread(lambda: None)

    def template(self, seed: int) -> SiteTemplate:
        return _template(self, seed)

    def cookies(self, site: OpenSite) -> Mapping[str, str]:
        [session] = site.database.template.rows[f"{self.name}.django_session"].values()
        return {SESSION: session[0]}

    def respond(self, site: OpenSite, request: Request) -> Response:
        path = request.path
        if path.startswith("/static/"):
            return in_thread(_static_file, path.removeprefix("/static/"))
        if path.startswith("/media/"):
            return _picture(site, path.removeprefix("/media/"))
        return KNOWN.respond(site, request, self._worked_out)

    def _worked_out(self, site: OpenSite, request: Request) -> Response:
        return in_thread(self._respond, site, request)

    def _respond(self, site: OpenSite, request: Request) -> Response:
        # Not by the number of requests: a page's own may come in any order.
        seed = f"{site.seed} {site.now} {request.method} {request.address} {request.body!r}"
        with serving(site.database.connection, site.now, seed):
            return wsgi.respond(_handler(self), request)


@contextmanager
def serving(connection: sqlite3.Connection, now: datetime, seed: str) -> Iterator[None]:
    """Let Django use a database, a time and random numbers, in this thread."""
    from django.contrib.sites.models import Site
    from django.db import connections
    from django.db.backends.sqlite3._functions import register

    register(connection)
    wrapper = connections.create_connection("default")
    wrapper.connection = connection
    connections["default"] = wrapper
    Site.objects.clear_cache()
    try:
        with request_clock.at(now, random.Random(seed)):
            yield
    finally:
        del connections["default"]


@cache
def _thread(process: int) -> ThreadPoolExecutor:
    """Return the thread in which a process's requests are answered."""
    return ThreadPoolExecutor(1, "sites")


def in_thread(function: Callable[..., Found], *given: object) -> Found:
    """Return what a function returns that uses Django, which is configured before."""

    def configured() -> Found:
        configure()
        return function(*given)

    return _thread(os.getpid()).submit(configured).result()


@cache
def _base() -> bytes:
    """Return a database with all tables and without rows of any application."""
    from django.core.management import call_command

    connection = opened(b"")
    with serving(connection, BEGIN, "base"):
        call_command("migrate", run_syncdb=True, verbosity=0)
        connection.execute(UPLOADS)
    return connection.serialize()


@lru_cache(TEMPLATES)
def _template(application: DjangoApplication, seed: int) -> SiteTemplate:
    return in_thread(_populated, application, seed)


def _populated(application: DjangoApplication, seed: int) -> SiteTemplate:
    from django.contrib.auth.models import User

    connection = opened(_base())
    with serving(connection, BEGIN, f"{application.name} {seed}"):
        connection.execute("BEGIN")
        id = application.populate(random.Random(f"{application.name} {seed}"))
        _sign_in(User.objects.get(pk=id))
        connection.execute("COMMIT")
    found = SiteTemplate.of(application.name, connection)
    connection.close()
    return found


def _sign_in(user: Any) -> None:
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()


@cache
def _handler(application: DjangoApplication) -> Callable[..., Any]:
    """Return the WSGI application of a site, with its own addresses and middleware."""
    from django.conf import settings
    from django.core.handlers.wsgi import WSGIHandler
    from django.urls import set_urlconf

    addresses = tuple(application.urls())

    def with_addresses(respond: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(request: Any) -> Any:
            set_urlconf(addresses)
            request.urlconf = addresses
            return respond(request)

        return answer

    settings.MIDDLEWARE = [*MIDDLEWARE, *application.middleware]
    handler = WSGIHandler()
    handler._middleware_chain = with_addresses(handler._middleware_chain)
    return handler


def _picture(site: OpenSite, name: str) -> Response:
    """Return a picture that is drawn, or a file that was uploaded."""
    if (drawn := drawn_picture(name)) is not None:
        return Response(drawn, "image/png", lasting=True)
    read = site.database.connection.execute(
        "SELECT content FROM uploaded_file WHERE name = ?", (name,)
    ).fetchone()
    if read is None:
        return Response(b"There is no such file.", "text/plain", 404)
    return Response(read[0], mimetypes.guess_type(name)[0] or "application/octet-stream")


@cache
def _static_file(name: str) -> Response:
    """Return a file that an application brings along."""
    from django.contrib.staticfiles import finders

    found = finders.find(name)
    if not isinstance(found, str) or not Path(found).is_file():
        return Response(b"There is no such file.", "text/plain", 404)
    type = mimetypes.guess_type(found)[0] or "application/octet-stream"
    shown = f"{type}; charset=utf-8" if type.startswith("text/") else type
    return Response(Path(found).read_bytes(), shown, lasting=True)
