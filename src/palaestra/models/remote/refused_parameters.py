"""Refused parameters: learned from a server's errors, and omitted from later requests.

Reasoning models take no temperature, older servers no `max_completion_tokens`, many no seed; this
changes with every model. So a request is first sent with everything that was asked for. If the
server answers 400 or 422 and names a parameter that it does not know or support, the request is
sent again without it. This is remembered for the model, in this process, and logged once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

STATUSES = (400, 422)
CHOSEN = frozenset({"reasoning_effort", "effort"})
"""Parameters for which another value may work: a refusal of the value alone is an error."""

_REFUSAL = re.compile(
    r"unsupported|not supported|n[o']t support|isn't supported|unrecognized|unknown|unexpected"
    r"|extra (inputs|fields)|not permitted|not allowed|deprecated|cannot find field"
    r"|may only be set|does not match any of the expected",
    re.I,
)


_VALUE = re.compile(r"unsupported.value", re.I)


class RefusedParameters:
    """The parameters that one model refuses."""

    def __init__(self, model: str) -> None:
        """Start with none; `model` is the model's name in log messages."""
        self._model = model
        self.names: set[str] = set()

    def learn(
        self, status: int, text: str, sent: Collection[str], known: Mapping[str, Collection[str]]
    ) -> bool:
        """Record the parameter that a response refuses; return whether to send the request again.

        Args:
            status: of the response.
            text: its body.
            sent: the optional parameters that were in the request.
            known: parameters to their possible names in errors.
        """
        if status not in STATUSES or not _REFUSAL.search(text):
            return False
        found = {}
        for parameter in set(sent) - (CHOSEN if _VALUE.search(text) else set()):
            places = [re.search(rf"(?<!\w){name}(?!\w)", text) for name in known[parameter]]
            if starts := [place.start() for place in places if place]:
                found[parameter] = min(starts)
        if not found:
            return False
        refused = min(found, key=lambda parameter: (found[parameter], parameter))
        if refused not in self.names:
            self.names.add(refused)
            logging.getLogger(__name__).warning(
                "%s refuses '%s'; it is omitted from now on.", self._model, refused
            )
        return True


_REMEMBERED: dict[str, RefusedParameters] = {}


def remembered(model: str) -> RefusedParameters:
    """Return the refused parameters of a model, shared within this process."""
    return _REMEMBERED.setdefault(model, RefusedParameters(model))
