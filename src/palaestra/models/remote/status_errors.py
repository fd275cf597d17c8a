"""HTTP errors: what an unsuccessful response means, and whether a retry may help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from palaestra.core.errors import ContextTooLong, InfrastructureFault, RequestRefused

LONGEST_PAUSE = 60.0  # seconds; a longer requested pause is an error
OVERLOADED = frozenset({408, 429, 503, 504, 529})  # the server wants fewer requests at once
REFUSED = (400, 413, 422)  # the request itself is at fault

_BUSY = frozenset({408, 409, 425, 429})  # retryable, as are 500 and above
_TOO_LONG = re.compile(
    r"context.?length|context.?window|context.?size|maximum context|prompt is too long", re.I
)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance|spend_limit_reached", re.I)
_REMEDIES = {
    401: "check the API key",
    403: "check that the API key may use this model",
    404: "check the model's name and that the URL is the base of the API",
    429: "check the account's credit",
}


def retryable(status: int, text: str) -> bool:
    """Return whether the same request may succeed later."""
    if status == 429 and _NO_CREDIT.search(text):
        return False
    return status in _BUSY or status >= 500


def retry_after(headers: Mapping[str, str]) -> float:
    """Return how many seconds the server asks to wait; 0 if it does not.

    `retry-after-ms` (OpenAI, Azure) is finer and takes precedence; `Retry-After` is a number of
    seconds or a date (RFC 9110, 10.2.3).

    Args:
        headers: of the response; names are case-insensitive.
    """
    fine, value = headers.get("retry-after-ms", ""), headers.get("Retry-After", "")
    for number, unit in ((fine, 1000), (value, 1)):
        try:
            return max(0.0, float(number) / unit)
        except ValueError:
            continue
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def refused_error(
    name: str, status: int, reason: str, text: str, *, answered: bool, key: str | None = None
) -> ContextTooLong | InfrastructureFault:
    """Return the error for a response that no retry would change.

    Args:
        name: of the server, as used in error messages.
        status: of the response.
        reason: the phrase beside the status.
        text: body of the response.
        answered: whether another request to the server succeeded: then this one is at fault.
        key: the environment variable that holds the API key; None if none is sent.
    """
    if status in REFUSED and _TOO_LONG.search(text):
        return ContextTooLong(f"The conversation does not fit the context of {name}: {quote(text)}")
    remedy = _REMEDIES.get(status, "check that the server accepts such requests")
    if status == 401:
        remedy += (
            f" in the environment variable {key}"
            if key
            else ": name its environment variable after '#' in the model's name"
        )
    kind = RequestRefused if answered and status in REFUSED else InfrastructureFault
    return kind("refused", f"{name} answered {status_line(status, reason, text)}; {remedy}")


def status_line(status: int, reason: str, text: str) -> str:
    """Return a response in one line: status, phrase and the beginning of the body."""
    return f"{status} {reason} ({quote(text)})"


def quote(text: str) -> str:
    """Return the beginning of a text on one line, in quotation marks."""
    text = " ".join(text.split())
    return f"'{text[:300]}…'" if len(text) > 300 else f"'{text}'"


def cause(error: BaseException) -> str:
    """Return an exception's type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
