"""The shelf: what episodes leave for later ones, by place.

An episode reads the shelf once, at its start, and what it read stands in its first prompt. So an
episode that was cut off is lived again with what it was told then (`Session.begun`), whatever the
shelf holds by now. What an episode finds depends on which others have ended: live them one at a
time for the order of the tasks.

Without a file, the shelf lasts as long as the process, and cells of an evaluation share nothing.
With a file, everything is kept there by environment, for all runs that name it.
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
    """One finished episode, as far as later ones may know it."""

    place: str
    episode: str  # unique within its place; of two of the same name the later one counts
    solved: bool
    first: str  # the first observation
    steps: list[tuple[str, str]]  # each action, and what was seen after it
    actions: list[str]  # those that the world understood
    told: str = ""  # of earlier episodes

    @property
    def story(self) -> str:
        """The episode in words, a line or more for each turn."""
        lines = [self.first]
        lines += [f"> {action}\n{seen}" for action, seen in self.steps]
        return "\n".join([*lines, "It was solved." if self.solved else "It was not solved."])


class Shelf:
    """Past episodes in the order in which they ended."""

    def __init__(self, file: str | None = None) -> None:
        """Raises InputError if nothing can be kept in the file."""
        self._file = None if file is None else Path(file).expanduser()
        self._known: dict[tuple[str, str], PastEpisode] = {}
        if self._file is not None and not self._file.absolute().parent.is_dir():
            raise InputError(f"shelf={file}: its folder does not exist; make it first.")

    def place(self, session: Session) -> str:
        """Where an episode reads and keeps."""
        if self._file is not None:
            return session.task.environment
        series = re.sub(r"/\d+$", "", session.key.phase)  # the steps of RL are one series
        return f"{session.task.environment} in {series}"

    def read(self, place: str) -> list[PastEpisode]:
        """The episodes there, the oldest first.

        Raises:
            InputError: the file holds something else.
        """
        if self._file is not None and self._file.exists():
            try:
                *lines, _ = self._file.read_text(encoding="utf-8").split("\n")
                self._known = {}
                for line in lines:  # what a killed process left half-written has no end
                    self._take(_past_episode(line))
            except (ValueError, TypeError, KeyError, OSError) as error:
                raise InputError(
                    f"shelf={self._file} is no shelf ({error}); name another."
                ) from None
        return [past for past in self._known.values() if past.place == place]

    def put(self, past: PastEpisode) -> None:
        """Keep an episode; in the file it is safe when this returns."""
        self._take(past)
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
        """Keep the episode that has just ended."""
        assert session.observation is not None and session.outcome is not None
        steps = [(s.action.text, s.transition.observation.text) for s in session.steps]
        understood = [s.action.text for s in session.steps if s.transition.valid]
        name, solved, first = str(session.key), session.outcome.solved, session.observation.text
        self.put(PastEpisode(place, name, solved, first, steps, understood, told))

    def _take(self, past: PastEpisode) -> None:
        self._known.pop((past.place, past.episode), None)  # a later one goes to the end
        self._known[past.place, past.episode] = past


def _past_episode(line: str) -> PastEpisode:
    found = json.loads(line)
    return PastEpisode(**found | {"steps": [(action, seen) for action, seen in found["steps"]]})
