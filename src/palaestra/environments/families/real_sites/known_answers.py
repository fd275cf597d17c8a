"""Answers that a site of this process gave before, so that it need not work them out again.

An application answers by its world's rows, its time and the request, and by nothing else (see
`django_clock.py`, `trac_server.py`). So an equal request, in an equal state, at an equal time, has
the same answer and leaves the same state. Such requests come when a page is restored, when a task
begins again, and from rollouts of one task that begin alike.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import OpenSite

MOST = 32 * 2**20  # bytes of answers and states that a process keeps


@dataclass(frozen=True, slots=True)
class _Known:
    response: Response
    after: bytes | None  # the state that it leaves; None: as before

    @property
    def size(self) -> int:
        return len(self.response.body) + len(self.after or b"")


class KnownAnswers:
    """The answers that were asked for last, up to some bytes; for any number of threads."""

    def __init__(self, most: int = MOST) -> None:
        """Begin with none; the oldest go when they are more than `most` bytes."""
        self._most, self._size = most, 0
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._lock = Lock()

    def respond(
        self, site: OpenSite, request: Request, work_out: Callable[[OpenSite, Request], Response]
    ) -> Response:
        """Return a known answer and leave the site in its state; an unknown one is worked out."""
        before = site.save()
        key = _key(site, before, request)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        if known is not None:
            if known.after is not None:
                site.load(known.after)
            return known.response
        response = work_out(site, request)
        after = site.save()
        self._keep(key, _Known(response, after if after != before else None))
        return response

    def forget(self) -> None:
        """Forget all answers."""
        with self._lock:
            self._known.clear()
            self._size = 0

    def _keep(self, key: bytes, known: _Known) -> None:
        with self._lock:
            if key in self._known:
                return
            self._known[key] = known
            self._size += known.size
            while self._size > self._most:
                self._size -= self._known.popitem(last=False)[1].size


def _key(site: OpenSite, state: bytes, request: Request) -> bytes:
    application = site.application
    kind, variant = type(application), application.variant
    said = [kind.__module__, kind.__qualname__, variant.size, variant.language, site.seed]
    asked = [site.now.isoformat(), request.method, request.address, dict(request.headers)]
    found = hashlib.blake2b(json.dumps([said, asked], sort_keys=True).encode(), digest_size=20)
    for part in (request.body, state):
        found.update(b"%d " % len(part) + part)
    return found.digest()


KNOWN = KnownAnswers()
"""Those of this process."""
