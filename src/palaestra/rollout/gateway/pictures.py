"""Pictures in a program's messages: they reach the model as they were sent.

A picture comes with the message that shows it. What lies at an address is not fetched: the gateway
would go where a program sends it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Protocol

from palaestra.core.message import picture_type
from palaestra.rollout.gateway.refusal import Refusal

KINDS = ("image_url", "input_image", "image")
"""What the protocols call a part that is a picture."""


class Shown(Protocol):
    """A part of a message, as far as it may show a picture."""

    @property
    def image_url(self) -> Any: ...
    @property
    def source(self) -> Any: ...


def picture(part: Shown) -> str:
    """The picture of a part, in base64.

    Raises:
        Refusal: it has none, or it is no PNG, JPEG, GIF or WebP.
    """
    source = part.source if isinstance(part.source, dict) else {}
    data = source.get("data") if source.get("type") == "base64" else None
    if data is None:
        linked = part.image_url
        address = linked.get("url") if isinstance(linked, dict) else linked
        head, _, data = address.partition(",") if isinstance(address, str) else ("", "", None)
        if not (head.startswith("data:") and head.endswith(";base64")):
            raise _refused("comes in its message: as data in base64, not as an address or a file")
    try:
        base64.b64decode(data if isinstance(data, str) else "", validate=True)
    except (binascii.Error, ValueError):
        raise _refused("is written in base64") from None
    if picture_type(str(data)) is None:
        raise _refused("is a PNG, JPEG, GIF or WebP")
    return str(data)


def _refused(rule: str) -> Refusal:
    return Refusal(400, f"A picture {rule}.", "invalid")
