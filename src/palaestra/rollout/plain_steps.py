"""The result of a step as a worker would send it, without being sent.

Nearly all results are made of texts, numbers and flags of exactly the declared types, and of an
`info` that is JSON. Those are checked and copied here in a fraction of the time that it takes to
write them as JSON and to parse it (`wire.py`), with the same result.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from pydantic_core import from_json, to_json

from palaestra.core.environment import Observation, Signals, Transition

MOST = 2**20
"""Characters of a text and bytes of an `info` that need no count against the contract's limit."""


def as_received(transition: Any, signals: Signals) -> Transition | None:
    """Return a transition as the receiver of its JSON would read it.

    Returns:
        None where only JSON can tell: unusual types, images, several rewards, large results.

    Raises:
        ValueError: the contract does not allow its text or its `info`.
    """
    if type(transition) is not Transition or type(transition.observation) is not Observation:
        return None
    given: Any = transition  # what its fields hold is not known
    seen, text = given.observation, given.observation.text
    plain = (
        type(text) is str
        and len(text) <= MOST
        and (text.isascii() or text.encode() != b"")  # which raises if it has no encoding
        and seen.images == ()
        and seen.others == {}
        and type(given.reward) is float
        and isfinite(given.reward)
        and type(given.terminated) is bool
        and type(given.truncated) is bool
        and type(given.success) is bool
        and type(given.valid) is bool
        and given.rewards == {}
        and _plain(signals)
    )
    info = _copied(given.info) if plain else None
    if info is None:
        return None
    return Transition(
        Observation(text),
        given.reward,
        given.terminated,
        given.truncated,
        given.success,
        given.valid,
        info,
    )


def _plain(signals: Signals) -> bool:
    key, progress = signals.state_key, signals.progress
    turn, together = signals.turn, signals.together
    return (
        (key is None or (type(key) is str and key.isascii()))
        and (progress is None or (type(progress) is float and isfinite(progress)))
        and (turn is None or (type(turn) is str and turn.isascii()))
        and (together == () or (type(together) is tuple and all(map(_is_name, together))))
        and signals.privileged == ()
    )


def _is_name(text: Any) -> bool:
    return type(text) is str and text.isascii()


def _copied(info: Any) -> dict[str, Any] | None:
    """Return an `info` after its way through JSON; None if it is none, or large."""
    if info == {}:
        return {}
    if type(info) is not dict or set(map(type, info)) != {str}:
        return None
    data = to_json(info, inf_nan_mode="null")
    if len(data) > MOST:
        return None
    copied: dict[str, Any] = from_json(data)
    return copied
