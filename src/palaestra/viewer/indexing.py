"""Builds the search indexes of runs in time slices, in the background of page requests."""

from __future__ import annotations

from pathlib import Path
from threading import Condition, Thread

from palaestra.core.errors import PalaestraError
from palaestra.store.liveness import Mark, mark
from palaestra.store.run_folder import RunFolder
from palaestra.store.search_index import Extent, TextIndex

SLICE = 2.0  # seconds for one run before the next one's turn


class Indexer:
    """A background thread that runs while there is something to index."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._wanted: dict[Path, None] = {}  # in the order of their turns
        self._done: dict[Path, tuple[Mark, Extent | str]] = {}  # or why it failed
        self._thread: Thread | None = None

    def extents(self, runs: list[Path], patience: float) -> dict[Path, Extent | str | None]:
        """Return the progress of the indexes of runs; start missing ones.

        Args:
            runs: their folders.
            patience: seconds to wait for all indexes to be complete.

        Returns:
            the extent, or why the index cannot be built, or None if it has not been started.
        """
        marks = {run: mark(run) for run in runs}

        def lacking() -> list[Path]:
            return [run for run in runs if not self._current(run, marks[run])]

        with self._changed:
            for run in lacking():
                self._wanted.setdefault(run)
            if self._wanted and self._thread is None:
                self._thread = Thread(target=self._work, name="indexer", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: not lacking(), patience)
            return {run: self._done[run][1] if run in self._done else None for run in runs}

    def _current(self, run: Path, state: Mark) -> bool:
        known, found = self._done.get(run, (None, None))
        return known == state and not (isinstance(found, Extent) and not found.whole)

    def _work(self) -> None:
        while True:
            with self._changed:
                run = next(iter(self._wanted), None)
                if run is None:
                    self._thread = None
                    return
            state, found = mark(run), self._extended(run)
            with self._changed:
                self._wanted.pop(run, None)
                self._done[run] = (state, found)
                if isinstance(found, Extent) and not found.whole:
                    self._wanted[run] = None  # after the others
                self._changed.notify_all()

    def _extended(self, run: Path) -> Extent | str:
        def told(extent: Extent) -> None:
            if not extent.whole:
                with self._changed:
                    self._done[run] = (mark(run), extent)

        try:
            with RunFolder.read(run) as opened:
                return TextIndex(run).extend(opened.database, seconds=SLICE, progress=told)
        except PalaestraError as error:
            return str(error)
