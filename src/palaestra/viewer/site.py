"""What all pages share: the runs there are, how a page is rendered, what a browser may do with it.

Pages are rendered here, so they can be read without JavaScript; scripts only make them quicker to
use. Whatever comes from an episode is text: templates escape it, and the browser is told to run
no script and load nothing but this site's own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from palaestra.core.errors import InputError
from palaestra.store.run import RunFolder, RunRecord, list_runs

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, and no script or style within a page."""


class Site:
    """The runs that are shown, and the pages' templates."""

    def __init__(self, root: Path, runs: Sequence[Path] = ()) -> None:
        """All runs in `root`, or only those given."""
        self._root, self._only = root, [Path(run).absolute() for run in runs]
        self._templates = Environment(
            loader=PackageLoader("palaestra.viewer"), autoescape=True, undefined=StrictUndefined
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
        path = next((found.path for found in self.records() if found.name == name), None)
        if path is None:
            raise HTTPException(404, f"There is no run '{name}' here.")
        try:
            opened = RunFolder.read(path)
        except InputError as error:
            raise HTTPException(409, str(error)) from None
        with opened:
            yield opened

    def page(self, template: str, **values: Any) -> HTMLResponse:
        """A rendered page."""
        return HTMLResponse(self._templates.get_template(template).render(**values))
