"""The site that all pages share: its runs, its templates, and its content security policy.

Pages are rendered on the server and work without JavaScript; scripts only make them faster to
use. Text of episodes is never trusted: templates escape it, and the policy allows the browser only
this site's own scripts and files. Invisible characters are marked.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.runtime.visible_text import visible
from palaestra.store.liveness import Mark, mark
from palaestra.store.run_folder import RunFolder, RunRecord, list_runs
from palaestra.viewer import formatting

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, and no script or style within a page."""

REQUEST: ContextVar[Request | None] = ContextVar("request", default=None)
"""The current request."""

PATIENCE = 0.1  # seconds that a page waits for numbers; slower ones are loaded afterwards
CACHED = 256  # answers in the cache
FRESH = 2.0  # seconds for which an answer about a running run stays valid
SHARE = 10  # and this multiple of its computing time: viewing must not slow the run
Answer = TypeVar("Answer")


class _CachedAnswer(NamedTuple):
    """A cached answer about a run."""

    state: Mark
    at: float  # by the monotonic clock
    fresh: float  # seconds for which it stays valid although the run has changed
    answer: Any


class Site:
    """The runs that are shown, and the pages' templates."""

    def __init__(self, root: Path, runs: Sequence[Path] = ()) -> None:
        """Show all runs in `root`, or only the given ones."""
        self._root, self._only = root, [Path(run).absolute() for run in runs]
        self._answers: OrderedDict[Hashable, _CachedAnswer] = OrderedDict()
        self._running: dict[Hashable, Future[None]] = {}
        self._guard = Lock()
        self._pool = ThreadPoolExecutor(2, "viewer")
        self._templates = page_templates()

    def records(self) -> list[RunRecord]:
        """Return the runs, newest first."""
        if not self._only:
            return list_runs(self._root)
        wanted = set(self._only)
        parents = dict.fromkeys(run.parent for run in self._only)
        return [found for parent in parents for found in list_runs(parent) if found.path in wanted]

    @contextmanager
    def run(self, name: str) -> Iterator[RunFolder]:
        """Open the run of that name for reading; another process may write to it.

        Raises:
            HTTPException: it does not exist (404), or cannot be read (409).
        """
        try:
            opened = RunFolder.read(self.path(name))
        except InputError as error:
            raise HTTPException(409, str(error)) from None
        with opened:
            yield opened

    def path(self, name: str) -> Path:
        """Return the folder of the run of that name; raise HTTPException (404) if there is none."""
        for found in self.records():
            if found.name == name:
                return found.path
        raise HTTPException(404, f"There is no run '{name}' here.")

    def cached(self, path: Path, what: Hashable, find: Callable[[], Answer]) -> Answer:
        """Return the cached result of `find` about the run in `path`; recompute it on changes."""
        state = mark(path)
        known = self._known(path, what, state)
        if known is None:
            known = self._keep(path, what, state, find)
        answer: Answer = known.answer
        return answer

    def soon(
        self, path: Path, what: Hashable, find: Callable[[], Answer], patience: float = PATIENCE
    ) -> Answer | None:
        """Return the cached result of a slow `find`; None until there is one.

        `find` runs in another thread, and continues there after `patience` seconds; until it
        ends, the result for an earlier state of the run is returned.
        """
        state = mark(path)
        known = self._known(path, what, state)
        with self._guard:
            running = self._running.get((path, what))
            if running is None and known is None:
                running = self._pool.submit(self._find, path, what, state, find)
                self._running[path, what] = running
        if running is not None:
            with suppress(TimeoutError):
                running.result(max(0.0, patience))
        with self._guard:
            known = self._answers.get((path, what))
        return None if known is None else known.answer

    def _find(self, path: Path, what: Hashable, state: Mark, find: Callable[[], Any]) -> None:
        try:
            self._keep(path, what, state, find)
        finally:
            with self._guard:
                self._running.pop((path, what), None)

    def _known(self, path: Path, what: Hashable, state: Mark) -> _CachedAnswer | None:
        """Return the cached answer if it is valid for that state of the run."""
        with self._guard:
            known = self._answers.get((path, what))
            if known is None or not (
                known.state == state or time.monotonic() - known.at < known.fresh
            ):
                return None
            self._answers.move_to_end((path, what))
            return known

    def _keep(
        self, path: Path, what: Hashable, state: Mark, find: Callable[[], Any]
    ) -> _CachedAnswer:
        begun = time.monotonic()
        answer = find()
        now = time.monotonic()
        known = _CachedAnswer(state, now, max(FRESH, SHARE * (now - begun)), answer)
        with self._guard:
            self._answers[path, what] = known
            while len(self._answers) > CACHED:
                self._answers.popitem(last=False)
        return known

    def prepare(self) -> None:
        """Compile the pages' templates, so that the first request does not wait for it."""
        for name in self._templates.list_templates(["html"]):
            self._templates.get_template(name)

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page."""
        text = self._templates.get_template(template).render(**values)
        return HTMLResponse(text.encode("utf-8", "replace"), status)


def page_templates() -> Environment:
    """Return the templates of pages; they escape all text, and mark invisible characters."""
    found = Environment(
        loader=PackageLoader("palaestra.viewer"),
        autoescape=True,
        finalize=_shown,  # except markup, such as the result of `| e`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(formatting.FILTERS)
    found.globals.update(export_link=_export_link, run_url=run_url, episode_url=episode_url)
    return found


def run_url(name: str) -> str:
    """Return the URL of a run."""
    return f"/run/{_quoted(name)}"


def episode_url(run: str, key: Key) -> str:
    """Return the URL of an episode of a run."""
    return f"{run_url(run)}/episode/{quote(str(key))}"


def _shown(value: object) -> object:
    """Return markup unchanged, and other values as text with invisible characters marked."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "surrogateescape"), safe="")


def _export_link() -> str:
    """Return the query of the current page's export."""
    request = REQUEST.get()
    return "" if request is None else str(request.url.include_query_params(export=1).query)
