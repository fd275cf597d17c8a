"""The shelf: a store of past episodes for later ones, keyed by place.

An episode reads the shelf once, at its start, and puts what it read into its first prompt. So an
interrupted episode is replayed with that prompt (`Session.first_recorded_call`), even if the shelf
has changed. What an episode finds depends on which others have ended: run them one at a time to
follow the order of the tasks.

Without a file, the shelf is in memory, and cells of an evaluation share nothing. With a file,
episodes are stored by environment, for all runs that use the file.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from palaestra.core.errors import InputError
from palaestra.core.session import Session


@dataclass(frozen=True, slots=True)
class PastEpisode:
    """What later episodes may know about a finished episode."""

    place: str
    episode: str  # unique within its place; a later one of the same name replaces it
    solved: bool
    first: str  # the first observation
    steps: list[tuple[str, str]]  # (action, observation)
    actions: list[str]  # the valid ones
    told: str = ""  # its prompt's text about earlier episodes

    @property
    def story(self) -> str:
        """Return the episode as text, at least one line per turn."""
        lines = [self.first]
        lines += [f"> {action}\n{seen}" for action, seen in self.steps]
        return "\n".join([*lines, "It was solved." if self.solved else "It was not solved."])


class Shelf:
    """A store of past episodes, in the order in which they ended."""

    def __init__(self, file: str | None = None) -> None:
        """Open a shelf in memory or in a file; raises InputError if its folder is missing."""
        self._file = None if file is None else Path(file).expanduser()
        self._known: dict[tuple[str, str], PastEpisode] = {}
        if self._file is not None and not self._file.absolute().parent.is_dir():
            raise InputError(f"shelf={file}: its folder does not exist; create it first.")

    def place(self, session: Session) -> str:
        """Return the key under which an episode reads and writes."""
        if self._file is not None:
            return session.task.environment
        series = re.sub(r"/\d+$", "", session.key.phase)  # the steps of RL are one series
        return f"{session.task.environment} in {series}"

    def read(self, place: str) -> list[PastEpisode]:
        """Return the episodes of a place, the oldest first.

        Raises:
            InputError: the file is not a shelf.
        """
        if self._file is not None and self._file.exists():
            try:
                *lines, _ = self._file.read_text(encoding="utf-8").split("\n")
                self._known = {}
                for line in lines:  # a half-written last line is dropped
                    self._insert(_past_episode(line))
            except (ValueError, TypeError, KeyError, OSError) as error:
                raise InputError(
                    f"shelf={self._file} is not a shelf ({error}); name another file."
                ) from None
        return [past for past in self._known.values() if past.place == place]

    def put(self, past: PastEpisode) -> None:
        """Store an episode; in a file it is durable when this returns."""
        self._insert(past)
        if self._file is not None:
            with self._file.open("ab+") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(0)
                whole = file.read().rfind(b"\n") + 1
                if whole < end:
                    file.truncate(whole)
                file.write(json.dumps(asdict(past)).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def keep(self, session: Session, place: str, told: str = "") -> None:
        """Store the episode that has just ended."""
        assert session.observation is not None and session.outcome is not None
        steps = [(s.action.text, s.transition.observation.text) for s in session.steps]
        understood = [s.action.text for s in session.steps if s.transition.valid]
        name, solved, first = str(session.key), session.outcome.solved, session.observation.text
        self.put(PastEpisode(place, name, solved, first, steps, understood, told))

    def _insert(self, past: PastEpisode) -> None:
        self._known.pop((past.place, past.episode), None)  # a later one goes to the end
        self._known[past.place, past.episode] = past


def _past_episode(line: str) -> PastEpisode:
    found = json.loads(line)
    return PastEpisode(**found | {"steps": [(action, seen) for action, seen in found["steps"]]})
