"""A world of sites with its page as bytes, and the return to it without its gestures.

What a site answers may depend on what it forgets with the answer, such as a message that is shown
once. Therefore the page is asked for again as it was, in the state of its site before; then all
sites get the state of now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from palaestra.browser import page_snapshot
from palaestra.browser.web_session import WebSession
from palaestra.environments.families.real_sites.compressing import compressed, parts_of
from palaestra.environments.families.real_sites.site_world import ShownPage, SiteWorld


def packed(world: SiteWorld, page: bytes, own: Mapping[str, Any]) -> bytes:
    """Return a world whose page was a GET's answer, a snapshot of the page, and values of JSON."""
    shown = world.shown
    assert shown is not None
    head = {
        "own": own,
        "now": world.now.isoformat(),
        "shown": [shown.site, shown.address, dict(shown.headers), shown.now.isoformat()],
    }
    rows = [site.save() for site in world.sites.values()]
    return compressed([json.dumps(head).encode(), page, shown.saved, *rows])


def returned(
    session: WebSession, world: SiteWorld, state: bytes, files: Mapping[str, bytes]
) -> dict[str, Any] | None:
    """Return to a world and its page; return the values; None: the page is not as it was.

    Args:
        session: of the same size.
        world: of the same sites and seed.
        state: what `packed` returned.
        files: that may be uploaded, by name.
    """
    head, page, before, *rows = parts_of(state)
    found = json.loads(head)
    site, address, headers, asked = found["shown"]
    shown = ShownPage(site, address, headers, datetime.fromisoformat(asked), before)
    _load(world, rows)
    world.before(shown)
    if not page_snapshot.restore(session, world.by_host(shown), page, files):
        return None
    session.sites = world.by_host()
    _load(world, rows)
    world.at(datetime.fromisoformat(found["now"]))
    own: dict[str, Any] = found["own"]
    return own


def _load(world: SiteWorld, rows: Sequence[bytes]) -> None:
    for site, saved in zip(world.sites.values(), rows, strict=True):
        site.load(saved)
