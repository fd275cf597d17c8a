"""Lifetimes of cookies by the world's clock; the browser would end them by that of this machine.

So the browser gets every cookie without its end, and the session removes it in time. Source of the
rules: RFC 6265 (attributes, default path; `Max-Age` is stronger than `Expires`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

_LASTING = ("expires", "max-age")


class CookieName(NamedTuple):
    """What tells a cookie from all others of a world."""

    name: str
    domain: str  # with a dot in front if its subdomains get it, too
    path: str


class CookieLifetimes:
    """When the cookies of a world end, in milliseconds since 1970."""

    def __init__(self, saved: Sequence[Sequence[str | float]] = ()) -> None:
        """Begin with what `saved` returned."""
        self._ends = {
            CookieName(str(name), str(domain), str(path)): float(end)
            for name, domain, path, end in saved
        }

    def without_end(self, text: str, address: str, now: float) -> str:
        """Note when a cookie ends, and return it without that; one that has ended is removed.

        Args:
            text: as in a header `Set-Cookie`.
            address: of the answer that sets it.
            now: the world's time.
        """
        pair, *attributes = text.split(";")
        parts = [(key.strip().lower(), value.strip()) for key, value in map(_split, attributes)]
        end = _end(parts, now)
        kept = [one for one, (key, _) in zip(attributes, parts, strict=True) if key not in _LASTING]
        plain = ";".join([pair, *kept])
        self.note(plain, address, end, now)
        return f"{plain}; Max-Age=0" if end is not None and end <= now else plain

    def note(self, plain: str, address: str, end: float | None, now: float) -> None:
        """Note when a cookie ends that the browser was given so; None: with the world."""
        name = _name(plain, address)
        self._ends.pop(name, None)
        if end is not None and end > now:
            self._ends[name] = end

    def ended(self, now: float) -> Iterator[CookieName]:
        """Yield the cookies that have ended, each once."""
        for name in [name for name, end in self._ends.items() if end <= now]:
            del self._ends[name]
            yield name

    def saved(self) -> list[tuple[str, str, str, float]]:
        """Return all ends, in an order that does not depend on the past."""
        return sorted((*name, end) for name, end in self._ends.items())


def _split(attribute: str) -> tuple[str, str]:
    key, _, value = attribute.partition("=")
    return key, value


def _end(attributes: Sequence[tuple[str, str]], now: float) -> float | None:
    """Return when a cookie with these attributes ends; None: with the world."""
    found = dict(attributes)
    age = found.get("max-age", "")
    if age.removeprefix("-").isdecimal():
        return now + 1000.0 * int(age)
    try:
        return 1000.0 * parsedate_to_datetime(found["expires"]).timestamp()
    except (KeyError, ValueError):  # what is no date is ignored
        return None


def _name(plain: str, address: str) -> CookieName:
    pair, *attributes = plain.split(";")
    found = {key.strip().lower(): value.strip() for key, value in map(_split, attributes)}
    parts = urlsplit(address)
    domain = found.get("domain", "").removeprefix(".").lower()
    path = found.get("path", "")
    if not path.startswith("/"):
        path = parts.path.rpartition("/")[0] or "/"
    wide = "." in domain  # a host without dots has no subdomains
    return CookieName(_split(pair)[0].strip(), f".{domain}" if wide else parts.hostname or "", path)
