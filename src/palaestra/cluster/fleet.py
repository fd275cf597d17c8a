"""The fleet: which worker processes should exist, which do, and when to start others.

A pure state machine. Its owner tells it what happens and at which time (seconds of any clock that
does not run backwards), and asks it what to do. A process is a *birth*: births are numbered and
never repeat, so a process that counted as dead cannot come back under its number.

    asked ──up──► up ──dismissed──► leaving
      └────lost────┴───────lost───────┴──► (gone)

After a death another process is started, later the more deaths there were recently. Too many
deaths within a few minutes end the run: whatever kills the processes would kill the next one too.
The end of a process that was to leave is no death, nor is that of a start whose machine is gone.
"""

from __future__ import annotations

from collections import deque

DEATHS = 5  # within `WINDOW`, after which no process is started any more
WINDOW = 300.0  # seconds
PAUSE = 0.25  # seconds between the second death and the next start; doubled with each further one
SILENT = 10  # heartbeats of the owner without a sign of life after which a process is frozen


class Fleet:
    """The processes of one kind."""

    def __init__(self, most: int) -> None:
        """Begin without processes; `most` is how many there should be, where they fit."""
        self.most = most
        self.asked: set[int] = set()  # started, and not heard of yet
        self.up: set[int] = set()  # at work
        self.leaving: set[int] = set()  # to end soon; others are started in their places
        self._births = 0
        self._silent: dict[int, int] = {}  # heartbeats without a sign of life, of those at work
        self._deaths: deque[float] = deque()  # when they happened, within the window

    def due(self, now: float, fits: int) -> list[int]:
        """Return the numbers of the processes to start now.

        Args:
            now: the time.
            fits: how many processes the machines have room for in all.
        """
        if self.failed(now) or now < self.resumes:
            return []
        count = min(self.most, fits) - len(self.asked) - len(self.up)
        fresh = [self._births + 1 + i for i in range(max(0, count))]
        self._births += len(fresh)
        self.asked.update(fresh)
        return fresh

    def rise(self, birth: int) -> bool:
        """Note that a process is at work; return False if it is not one that was asked for."""
        if birth not in self.asked:
            return False
        self.asked.remove(birth)
        self.up.add(birth)
        self._silent[birth] = 0
        return True

    def dismiss(self, birth: int) -> bool:
        """Note that a process is to leave; return False if it is not at work."""
        if birth not in self.up:
            return False
        self.up.remove(birth)
        self.leaving.add(birth)
        return True

    def lose(self, birth: int, now: float, *, blameless: bool = False) -> bool:
        """Note that a process is gone; return False if it counted as gone already.

        Args:
            birth: the process.
            now: the time.
            blameless: its end is no death, because nothing can be concluded from it.
        """
        if birth not in self.asked | self.up | self.leaving:
            return False
        if birth not in self.leaving and not blameless:
            self._deaths.append(now)
        for known in (self.asked, self.up, self.leaving):
            known.discard(birth)
        self._silent.pop(birth, None)
        return True

    def hear(self, birth: int) -> None:
        """Note a sign of life."""
        if birth in self._silent:
            self._silent[birth] = 0

    def beat(self) -> list[int]:
        """Count a heartbeat; return the processes that are frozen.

        Beats are counted rather than seconds, because the owner may have been stopped itself.
        """
        for birth in self._silent:
            self._silent[birth] += 1
        return [birth for birth, silent in self._silent.items() if silent >= SILENT]

    @property
    def resumes(self) -> float:
        """The time before which no process is started."""
        recent = len(self._deaths)
        return self._deaths[-1] + PAUSE * 2 ** (recent - 2) if recent > 1 else float("-inf")

    def failed(self, now: float) -> bool:
        """Whether there were too many deaths to go on."""
        _drop(self._deaths, now - WINDOW)
        return len(self._deaths) >= DEATHS


def _drop(times: deque[float], before: float) -> None:
    while times and times[0] <= before:
        times.popleft()
