"""Pictures in a program's messages: they reach the model as they were sent.

A picture comes with the message that shows it. What lies at an address is not fetched: the gateway
would go where a program sends it.
"""

from __future__ import annotations

import base64
import binascii

from palaestra.core.message import picture_type
from palaestra.rollout.gateway.refusal import Refusal

KINDS = ("image_url", "input_image", "image")
"""What the protocols call a part that is a picture."""


def picture(address: str) -> str:
    """The picture at an address of the kind `data:…;base64,…`, in base64.

    Raises:
        Refusal: it is at another kind of address, or no PNG, JPEG, GIF or WebP.
    """
    head, _, data = address.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise _refused("comes in its message: as data in base64, not as an address or a file")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _refused("is written in base64") from None
    if picture_type(data) is None:
        raise _refused("is a PNG, JPEG, GIF or WebP")
    return data


def _refused(rule: str) -> Refusal:
    return Refusal(400, f"A picture {rule}.", "invalid")
