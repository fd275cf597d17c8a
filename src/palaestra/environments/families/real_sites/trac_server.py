"""Trac in this process: one environment of it answers the requests of all worlds.

A world has a database (`site_database.py`) and a repository, which is read only and the same for
all worlds of a seed. What Trac remembers between two requests is forgotten after each.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import SimpleNamespace
from typing import Any

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites import request_clock, wsgi

HERE = "palaestra.environments.families.real_sites"
MODULES = (
    "trac.about", "trac.attachment", "trac.mimeview.patch", "trac.prefs.web_ui",
    "trac.search.web_ui", "trac.ticket.batch", "trac.ticket.query", "trac.ticket.report",
    "trac.ticket.roadmap", "trac.ticket.web_ui", "trac.timeline.web_ui",
    "trac.versioncontrol.web_ui", "trac.web.auth", "trac.web.session", "trac.wiki.interwiki",
    "trac.wiki.macros", "trac.wiki.web_ui", "tracopt.versioncontrol.git.git_fs",
)  # fmt: skip
"""The parts of Trac that sites have. Those for administrators write its configuration."""

OPTIONS: Mapping[tuple[str, str], str] = {
    ("components", f"{HERE}.trac_components.*"): "enabled",
    ("components", "tracopt.versioncontrol.git.*"): "enabled",
    ("trac", "database"): "world:/",
    ("trac", "auto_preview_timeout"): "0",  # a preview may come before or after the next gesture
    ("trac", "default_date_format"): "iso8601",
    ("trac", "default_dateinfo_format"): "absolute",
    ("trac", "default_language"): "en",
    ("trac", "default_timezone"): "UTC",
    ("trac", "resizable_textareas"): "disabled",
    ("trac", "use_chunked_encoding"): "disabled",
    ("trac", "wiki_toolbars"): "disabled",
    ("header_logo", "src"): "",
    ("metanav", "help"): "disabled",  # the pages of help are not part of the package
    ("project", "footer"): "",
    ("project", "name"): "Code",
    ("ticket", "restrict_owner"): "enabled",  # owners are chosen from a list
    ("git", "cached_repository"): "enabled",  # changesets are rows of the database
    ("git", "trac_user_rlookup"): "enabled",  # authors are users of Trac
    ("git", "use_committer_id"): "disabled",
}
EXPIRES = re.compile("; expires=[^;]*")
"""When a cookie ends; Python reckons it from the real time, and no episode lasts until then."""

_lock = RLock()  # what Trac keeps of a request is the process's


@contextmanager
def serving(
    connection: sqlite3.Connection, repository: Path, now: datetime, seed: str
) -> Iterator[Any]:
    """Let Trac use a database, a repository, a time and random numbers; yield its environment."""
    with _lock:
        environment = trac_environment()
        from palaestra.environments.families.real_sites import trac_components

        token = trac_components.served.set(trac_components.Served(connection, repository))
        environment.forget()
        try:
            with request_clock.at(now, random.Random(seed)):
                yield environment
        finally:
            environment.shutdown(_thread_id())
            connection.isolation_level = None  # as the site's own readers want it
            trac_components.served.reset(token)


def respond(environment: Any, request: Request) -> Response:
    """Return what Trac answers to a request; while it is served."""
    from trac.web.main import dispatch_request

    def application(environ: dict[str, Any], start: Any) -> Any:
        return dispatch_request({**environ, "trac.env_path": environment.path}, start)

    found = wsgi.respond(application, request)
    return replace(found, cookies=tuple(EXPIRES.sub("", cookie) for cookie in found.cookies))


def package_folder() -> Path:
    """Return the folder of Trac's package."""
    import trac

    return Path(trac.__file__).parent


@cache
def process_folder() -> Path:
    """Return a folder of this process, which is removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="palaestra-trac-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def trac_environment() -> Any:
    """Return the environment of this process.

    Raises:
        ImportError: Trac, or what it needs, is not installed.
    """
    _load()
    from trac.env import env_cache
    from trac.ticket.default_workflow import load_workflow_config_snippet

    from palaestra.environments.families.real_sites.trac_components import ProjectEnvironment

    made = ProjectEnvironment(process_folder() / "environment", OPTIONS)
    load_workflow_config_snippet(made.config, "basic-workflow.ini")
    env_cache[made.path] = made
    return made


@cache
def _load() -> None:
    """Import Trac's parts, with the clock of worlds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that pkg_resources will go
        _install_clock()
        for name in MODULES:
            import_module(name)
    from trac.web import main

    from palaestra.environments.families.real_sites import trac_components

    trac_components.keep_attachments_in_database()
    # Trac collects the garbage of the whole process after each answer, which takes longer than it.
    main.gc = SimpleNamespace(collect=lambda: 0)


def _install_clock() -> None:
    """Replace Trac's clock and its source of random numbers, before its parts import them."""
    from trac import util
    from trac.util import datefmt

    def datetime_now(zone: tzinfo | None = None) -> datetime:
        return request_clock.now().astimezone(zone or datefmt.localtz)

    def time_now() -> float:
        return request_clock.now().timestamp()

    def urandom(size: int) -> bytes:
        found = request_clock.served.get()
        return os.urandom(size) if found is None else found.random.randbytes(size)

    stands_for = {"time_now": time_now, "datetime_now": datetime_now}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "trac":
            for attribute in stands_for.keys() & vars(module).keys():
                setattr(module, attribute, stands_for[attribute])
    util.urandom = urandom


def _thread_id() -> int:
    from trac.util.concurrency import get_thread_id

    found: int = get_thread_id()
    return found
