"""A world of sites with its page as bytes, and the return to it without the whole way there.

What a site answers may depend on what it forgets with the answer, such as a message that is shown
once. Therefore the page is asked for again as it was, in the state of its site before; then all
sites get the state of now. Where a page does not come back so, because of what its scripts know,
the gestures since it was loaded are done again, from the state that the sites had then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from palaestra.browser import page_snapshot
from palaestra.browser.web_session import WebSession
from palaestra.environments.families.real_sites.compressing import compressed, parts_of
from palaestra.environments.families.real_sites.site_world import ShownPage, SiteWorld


@dataclass(frozen=True, slots=True)
class Loaded:
    """A world when the page that is shown was loaded."""

    done: int  # how many actions led there
    page: page_snapshot.Arrival
    own: Mapping[str, Any]  # values of JSON
    rows: tuple[bytes, ...]

    @classmethod
    def now(
        cls, done: int, session: WebSession, world: SiteWorld, own: Mapping[str, Any]
    ) -> Loaded:
        """Describe a world whose page was just loaded."""
        return cls(done, page_snapshot.arrival(session), own, _rows(world))


@dataclass(frozen=True, slots=True)
class SavedWorld:
    """A world whose page was a GET's answer."""

    page: bytes  # a snapshot
    now: datetime
    own: Mapping[str, Any]
    shown: ShownPage
    loaded: Loaded
    rows: tuple[bytes, ...]

    @classmethod
    def of(
        cls, session: WebSession, world: SiteWorld, own: Mapping[str, Any], loaded: Loaded
    ) -> SavedWorld | None:
        """Return a world as it is; None: only its gestures lead back to it."""
        page = page_snapshot.save(session, loaded.page)
        if not page or world.shown is None:
            return None
        return cls(page, world.now, own, world.shown, loaded, _rows(world))

    # ── bytes ────────────────────────────────────────────────────────────────

    def packed(self) -> bytes:
        """Return it as bytes."""
        shown, loaded = self.shown, self.loaded
        head = {
            "own": self.own,
            "now": self.now.isoformat(),
            "shown": [shown.site, shown.address, dict(shown.headers), shown.now.isoformat()],
            "loaded": [loaded.done, asdict(loaded.page), loaded.own],
        }
        parts = [json.dumps(head).encode(), self.page, shown.saved, *loaded.rows, *self.rows]
        return compressed(parts)

    @classmethod
    def read(cls, state: bytes) -> SavedWorld:
        """Return what was packed."""
        head, page, before, *rows = parts_of(state)
        found = json.loads(head)
        site, address, headers, asked = found["shown"]
        shown = ShownPage(site, address, headers, datetime.fromisoformat(asked), before)
        done, arrival, own = found["loaded"]
        half = len(rows) // 2
        loaded = Loaded(done, page_snapshot.Arrival(**arrival), own, tuple(rows[:half]))
        now = datetime.fromisoformat(found["now"])
        return cls(page, now, found["own"], shown, loaded, tuple(rows[half:]))

    # ── returning ────────────────────────────────────────────────────────────

    def restore(self, session: WebSession, world: SiteWorld, files: Mapping[str, bytes]) -> bool:
        """Return to the world and its page; return whether the page is as it was.

        Args:
            session: of the same size.
            world: of the same sites and seed.
            files: that may be uploaded, by name.
        """
        _load(world, self.rows)
        world.before(self.shown)
        if not page_snapshot.restore(session, world.by_host(self.shown), self.page, files):
            return False
        session.sites = world.by_host()
        _load(world, self.rows)
        world.at(self.now)
        return True

    def revisit(self, session: WebSession, world: SiteWorld, files: Mapping[str, bytes]) -> bool:
        """Return to when the page was loaded, see `restore`; return whether that is possible.

        Then the gestures since are to be done again.
        """
        rows, arrived = self.loaded.rows, self.loaded.page
        _load(world, rows)
        world.before(self.shown)
        hosts = world.by_host(self.shown)
        if not page_snapshot.revisit(session, hosts, self.page, arrived, files):
            return False
        session.sites = world.by_host()
        _load(world, rows)
        return True

    def is_back(self, session: WebSession, world: SiteWorld, own: Mapping[str, Any]) -> bool:
        """Return whether all is as it was, after `revisit` and those gestures."""
        there = (own, _rows(world)) == (self.own, self.rows)
        return there and page_snapshot.is_back(session, self.page)


def _rows(world: SiteWorld) -> tuple[bytes, ...]:
    return tuple(site.save() for site in world.sites.values())


def _load(world: SiteWorld, rows: Sequence[bytes]) -> None:
    for site, saved in zip(world.sites.values(), rows, strict=True):
        site.load(saved)
