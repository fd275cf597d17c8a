"""Tracking: sending a run's metrics to trackers, which never delay or stop the run.

The run's own record is written first and is complete. Each tracker has its own thread, which notes
its position in the run's folder; metrics beyond that position are sent when the run is opened
again. So a resumed run continues the tracker's run, and no step is sent twice.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean
from types import TracebackType
from typing import Any

from rich.markup import escape

from palaestra.evaluation.statistics.player_results import has_success, scores_of
from palaestra.runtime.progress import Reporter
from palaestra.store.database import Database
from palaestra.store.disk import replace_durably
from palaestra.store.run_folder import RunFolder
from palaestra.training.trackers import KINDS, Ending, Target

PATIENCE = 60.0  # seconds for a tracker to finish writing after the run
Row = tuple[str, int, dict[str, float]]  # phase, step, metrics


class Tracking:
    """The trackers of a run, open within a `with`."""

    def __init__(self, run: RunFolder, recipe: Mapping[str, Any], reporter: Reporter) -> None:
        """Prepare the trackers that the recipe's key `log` names."""
        self._database, self._reporter = run.database, reporter
        settings = flat(recipe)
        self._feeds = [Feed(name, run.path, settings, reporter) for name in recipe["log"]]

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Queue the metrics of a recorded step for sending; return immediately."""
        for feed in self._feeds:
            feed.waiting.put((phase, step, dict(values)))

    def log_success(self, phase: str) -> None:
        """Send the result of a finished test."""
        if self._feeds:
            self.log(phase, 0, success_of(self._database, phase))

    def __enter__(self) -> Tracking:
        if self._feeds:
            for phase in self._database.metric_phases():
                for step, values in self._database.metrics(phase):
                    self.log(phase, step, values)
            for stage in self._database.get("stages") or []:
                if stage["name"].startswith(("test/", "transfer/", "validation/")):
                    self.log_success(stage["name"])
        for feed in self._feeds:
            feed.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        interrupted = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        failed = Ending.STOPPED if interrupted else Ending.FAILED
        for feed in self._feeds:
            feed.waiting.put(Ending.FINISHED if error is None else failed)
        for feed in self._feeds:
            feed.join(PATIENCE)
            if feed.is_alive():
                self._reporter.say(
                    f"{feed.name} has not received everything after {PATIENCE:.0f} s; resume the "
                    "run to send the rest"
                )


class Feed(threading.Thread):
    """One tracker's thread: takes rows from `waiting` until an `Ending` comes."""

    def __init__(
        self, name: str, run: Path, settings: Mapping[str, Any], reporter: Reporter
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.waiting: SimpleQueue[Row | Ending] = SimpleQueue()
        self._folder, self._run_name = run / name, run.absolute().name
        self._settings, self._reporter = settings, reporter

    def run(self) -> None:
        """Send queued rows; report a failure once, then send nothing more."""
        try:
            self._send()
        except Exception as error:
            reason = escape(" ".join(f"{type(error).__name__}: {error}".split())[:300])
            self._reporter.say(
                f"[yellow]{self.name}[/yellow] failed ({reason}) and receives nothing more; the "
                "run goes on, its own record is complete, and resuming it sends the rest"
            )

    def _send(self) -> None:
        self._folder.mkdir(exist_ok=True)
        note = self._folder / "palaestra.json"
        known = json.loads(note.read_text()) if note.is_file() else {"id": None, "sent": {}}
        sent: dict[str, int] = known["sent"]
        target = Target(self._folder, self._run_name, known["id"], self._settings)
        tracker = KINDS[self.name].open(target)
        item: Row | Ending = ("", 0, {})
        while not isinstance(item, Ending):
            phase, step, values = item
            if values and step > sent.get(phase, -1):
                tracker.log(phase, step, values)
                sent[phase] = step
            replace_durably(note, json.dumps({"id": tracker.id, "sent": sent}))
            item = self.waiting.get()
        tracker.close(item)


def success_of(database: Database, phase: str) -> dict[str, float]:
    """Return the success of a phase's episodes, and how many of them were scored.

    Of games between players, return the mean return of each instead.
    """
    own = [one for one in database.summaries(phase) if one.key.phase == phase]
    scored = [one.outcome.solved for one in own if one.outcome.scored]
    if not all(has_success(id) for id in {one.environment for one in own}):
        players = scores_of(database.episodes(phase))
        return {f"return/{p}": of.mean for p, of in players.items()} | {"tasks": len(scored)}
    return {"success": fmean(scored) if scored else float("nan"), "tasks": len(scored)}


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, str | float | bool]:
    """Return the values of nested tables under dotted keys; leave out unset ones."""
    found: dict[str, str | float | bool] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, str | int | float):
            found[prefix + key] = value
        elif value is not None:
            found[prefix + key] = json.dumps(value)
    return found
