"""Live progress: one moving line per stage on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LINE_EVERY = 10.0  # seconds between plain lines


class StageProgress:
    """The progress of one stage; `Reporter.stage` creates it."""

    def __init__(self, reporter: Reporter, name: str, total: int, unit: str) -> None:
        self._reporter, self._name, self._total, self._unit = reporter, name, total, unit
        self._started = self._last = time.monotonic()
        self._done = self._first = 0
        self._live: Progress | None = None
        self._task: TaskID | None = None

    def show(
        self,
        done: int,
        figures: Mapping[str, str],
        total: int | None = None,
        most: float | None = None,
    ) -> None:
        """Show that `done` of the stage's units are finished, with `figures` beside.

        The stage ends after `most` seconds from now, whatever is done then.
        """
        self._total = total or self._total
        if self._done == 0 and done > 1:
            self._first = done - 1  # a resumed stage does not start at zero
        self._done = done
        detail = "  ".join(f"{name} {value}" for name, value in figures.items())
        text = f"{detail}  {self._left(most)}".strip()
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=done, total=self._total, detail=text)
        elif time.monotonic() - self._last >= LINE_EVERY or done >= self._total:
            self._last = time.monotonic()
            self._reporter.say(f"{self._name}: {done}/{self._total} {self._unit}  {text}")

    def _left(self, most: float | None) -> str:
        finished = self._done - self._first
        if finished <= 0 or self._done >= self._total:
            return ""
        seconds = (time.monotonic() - self._started) / finished * (self._total - self._done)
        return f"{clock(seconds if most is None else min(seconds, max(most, 0.0)))} left"


class Reporter:
    """The progress messages of a run, on one console (standard error)."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line with the time since the start."""
        stamp = clock(time.monotonic() - self._started)
        self.console.print(f"[dim]{stamp:>6}[/dim]  {text}", highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[StageProgress]:
        """Show the progress of a stage of `total` units; on a terminal as a moving line."""
        stage = StageProgress(self, name, total, unit)
        if not self.console.is_terminal:
            self.say(f"{name}: {total} {unit}")
            yield stage
            return
        with Progress(
            TextColumn("{task.fields[stamp]:>6}  [bold]{task.description:<20}"),
            BarColumn(bar_width=18),
            TextColumn("{task.completed}/{task.total} {task.fields[unit]}"),
            TimeElapsedColumn(),
            TextColumn("[cyan]{task.fields[detail]}"),
            console=self.console,
        ) as live:
            stamp = clock(time.monotonic() - self._started)
            stage._live = live
            stage._task = live.add_task(name, total=total, unit=unit, detail="", stamp=stamp)
            yield stage


def clock(seconds: float) -> str:
    """Format minutes and seconds, e.g. 3:07."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
