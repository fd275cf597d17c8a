"""What all pages share: the runs there are, how a page is rendered, what a browser may do with it.

Pages are rendered here, so they can be read without JavaScript; scripts only make them quicker to
use. Whatever comes from an episode is text: templates escape it, and the browser is told to run
no script and load nothing but this site's own files. What could not be seen in it is marked.
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
from palaestra.core.visible import visible
from palaestra.store.liveness import Mark, mark
from palaestra.store.run import RunFolder, RunRecord, list_runs
from palaestra.viewer import words

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, and no script or style within a page."""

REQUEST: ContextVar[Request | None] = ContextVar("request", default=None)
"""The request that is being answered."""

PATIENCE = 0.1  # seconds that a page waits for figures; they come a moment later where it is more
KEPT = 256  # answers that are remembered
FRESH = 2.0  # seconds for which an answer about a run that is being written to is good enough
SHARE = 10  # and as many times what it took: looking on must not slow the run
Answer = TypeVar("Answer")


class _Kept(NamedTuple):
    """An answer about a run."""

    state: Mark
    at: float  # by the monotonic clock
    fresh: float  # seconds for which it is good enough although the run has changed
    answer: Any


class Site:
    """The runs that are shown, and the pages' templates."""

    def __init__(self, root: Path, runs: Sequence[Path] = ()) -> None:
        """All runs in `root`, or only those given."""
        self._root, self._only = root, [Path(run).absolute() for run in runs]
        self._answers: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._running: dict[Hashable, Future[None]] = {}
        self._guard = Lock()
        self._pool = ThreadPoolExecutor(2, "viewer")
        self._templates = Environment(
            loader=PackageLoader("palaestra.viewer"),
            autoescape=True,
            finalize=_shown,  # but for markup, as `| e` makes of what forms send back
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(words.FILTERS)
        self._templates.globals.update(
            export_link=_export_link, run_url=run_url, episode_url=episode_url
        )

    def records(self) -> list[RunRecord]:
        """The runs, newest first."""
        if not self._only:
            return list_runs(self._root)
        wanted = set(self._only)
        parents = dict.fromkeys(run.parent for run in self._only)
        return [found for parent in parents for found in list_runs(parent) if found.path in wanted]

    @contextmanager
    def run(self, name: str) -> Iterator[RunFolder]:
        """The run of that name, for reading, while another process may write to it.

        Raises:
            HTTPException: there is none (404), or it cannot be read (409).
        """
        try:
            opened = RunFolder.read(self.path(name))
        except InputError as error:
            raise HTTPException(409, str(error)) from None
        with opened:
            yield opened

    def path(self, name: str) -> Path:
        """The folder of the run of that name; raises HTTPException (404) where there is none."""
        for found in self.records():
            if found.name == name:
                return found.path
        raise HTTPException(404, f"There is no run '{name}' here.")

    def remembered(self, path: Path, what: Hashable, find: Callable[[], Answer]) -> Answer:
        """What `find` says about the run in `path`; asked anew once the run has changed."""
        state = mark(path)
        known = self._known(path, what, state)
        if known is None:
            known = self._keep(path, what, state, find)
        answer: Answer = known.answer
        return answer

    def soon(
        self, path: Path, what: Hashable, find: Callable[[], Answer], patience: float = PATIENCE
    ) -> Answer | None:
        """As `remembered`, for questions that may take long: None until there is an answer.

        `find` runs in another thread, and goes on there when `patience`, in seconds, is over;
        an answer about an earlier state of the run is given meanwhile.
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
            kept = self._answers.get((path, what))
        return None if kept is None else kept.answer

    def _find(self, path: Path, what: Hashable, state: Mark, find: Callable[[], Any]) -> None:
        try:
            self._keep(path, what, state, find)
        finally:
            with self._guard:
                self._running.pop((path, what), None)

    def _known(self, path: Path, what: Hashable, state: Mark) -> _Kept | None:
        """The answer that is remembered, if it is good enough for that state of the run."""
        with self._guard:
            kept = self._answers.get((path, what))
            if kept is None or not (kept.state == state or time.monotonic() - kept.at < kept.fresh):
                return None
            self._answers.move_to_end((path, what))
            return kept

    def _keep(self, path: Path, what: Hashable, state: Mark, find: Callable[[], Any]) -> _Kept:
        begun = time.monotonic()
        answer = find()
        now = time.monotonic()
        kept = _Kept(state, now, max(FRESH, SHARE * (now - begun)), answer)
        with self._guard:
            self._answers[path, what] = kept
            while len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        return kept

    def prepare(self) -> None:
        """Compile the pages' templates, so that the first who asks for one does not wait for it."""
        for name in self._templates.list_templates(["html"]):
            self._templates.get_template(name)

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A rendered page."""
        text = self._templates.get_template(template).render(**values)
        return HTMLResponse(text.encode("utf-8", "replace"), status)


def run_url(name: str) -> str:
    """Where a run is shown."""
    return f"/run/{_quoted(name)}"


def episode_url(run: str, key: Key) -> str:
    """Where an episode of a run is shown."""
    return f"{run_url(run)}/episode/{quote(str(key))}"


def _shown(value: object) -> object:
    """What a template writes: markup as it is, all else with what cannot be seen marked."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "surrogateescape"), safe="")


def _export_link() -> str:
    """The present page as a file."""
    request = REQUEST.get()
    return "" if request is None else str(request.url.include_query_params(export=1).query)
