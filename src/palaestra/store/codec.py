"""The stored form of the nouns: compact JSON, and packed numbers for tokens.

Everything comes back equal to what was stored. Token ids and log-probabilities,
which make up most of an episode, are packed in the narrowest form that holds each
of them exactly; other numbers are JSON, whose floats are written so that reading
them gives the same bits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from palaestra.core.episode import Step
from palaestra.core.errors import AgentFault, EnvironmentFault, InfrastructureFault, PalaestraError
from palaestra.core.graph import Call
from palaestra.core.journal import Event

if TYPE_CHECKING:
    from pydantic import TypeAdapter

JSON: TypeAlias = Any  # None, bool, int, float, str, and lists and string-keyed mappings of these

_PACKED = {"__all__": {"prompt", "completion", "logprobs", "entropies"}}  # of each of a list
_UNPACKED = '{"prompt":[],"completion":[],"logprobs":[],'  # how a call read without them begins

_adapters: dict[Any, TypeAdapter[Any]] = {}


class EventRow(NamedTuple):
    """A call or a step as the database holds it."""

    kind: str  # "call" or "step"
    body: str  # JSON of the noun, without what is below
    prompt: bytes | None  # packed integers; None for a step
    completion: bytes | None  # packed integers; None for a step
    logprobs: bytes | None  # packed floats, the entropies behind if known; None for a step


def encode_event(event: Event) -> EventRow:
    """The row of one event.

    Raises:
        AgentFault, EnvironmentFault, InfrastructureFault: the event holds something that
            is no JSON; the type says whether agent, world or model put it there.
    """
    try:
        if isinstance(event, Step):
            return EventRow("step", to_json(event), None, None, None)
        return EventRow(
            kind="call",
            body=to_json(event, _PACKED),
            prompt=pack_integers(event.prompt),
            completion=pack_integers(event.completion),
            logprobs=_pack_both(event.logprobs, event.entropies),
        )
    except (ValueError, TypeError, struct.error) as error:
        raise _fault(event, error) from error


def decode_events(rows: Sequence[EventRow]) -> list[Event]:
    """The events of many rows, in their order; reading many at once is much faster."""
    bodies = [_UNPACKED + row.body[1:] for row in rows if row.kind == "call"]
    calls = iter(from_json(Call, bodies))
    steps = iter(from_json(Step, [row.body for row in rows if row.kind == "step"]))
    events: list[Event] = []
    for row in rows:
        if row.kind == "step":
            events.append(next(steps))
            continue
        logprobs, entropies = _unpack_both(row.logprobs or b"")
        call = replace(
            next(calls),
            prompt=unpack(row.prompt or b""),
            completion=unpack(row.completion or b""),
            logprobs=logprobs,
            entropies=entropies,
        )
        events.append(call)
    return events


def to_json(value: object, without: Mapping[str, set[str]] | None = None) -> str:
    """One noun of the core as JSON, in the form of pydantic `without` some fields.

    Raises:
        ValueError: it holds something that is no JSON.
    """
    writer = _adapter(type(value)).serializer
    written = writer.to_json([value], exclude=without, warnings="error")
    return written[1:-1].decode()


def from_json(kind: Any, bodies: Sequence[str]) -> list[Any]:
    """The nouns of type `kind` that `to_json` wrote."""
    values: list[Any] = _adapter(kind).validate_json(f"[{','.join(bodies)}]")
    return values


def pack_integers(values: Sequence[int]) -> bytes:
    """One letter that names the width, then the numbers; nothing for no numbers."""
    if not values:
        return b""
    low, high = min(values), max(values)
    code = "q" if low < 0 or high >= 1 << 32 else "I" if high >= 1 << 16 else "H"
    return code.encode() + struct.pack(f"<{len(values)}{code}", *values)


def pack_floats(values: Sequence[float]) -> bytes:
    """As `pack_integers`; in single precision where that loses nothing."""
    if not values:
        return b""
    exact = struct.pack(f"<{len(values)}d", *values)
    try:
        single = struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        return b"d" + exact
    back = struct.unpack(f"<{len(values)}f", single)
    lossless = struct.pack(f"<{len(values)}d", *back) == exact
    return b"f" + single if lossless else b"d" + exact


def unpack(packed: bytes) -> tuple[Any, ...]:
    """The numbers that one of the two above packed."""
    if not packed:
        return ()
    code = chr(packed[0])
    count = (len(packed) - 1) // struct.calcsize(f"<{code}")
    return struct.unpack_from(f"<{count}{code}", packed, 1)


def _pack_both(logprobs: Sequence[float], entropies: Sequence[float]) -> bytes:
    """The first alone as ever; with the second, "+", the size of the first, and both."""
    first = pack_floats(logprobs)
    if not entropies:
        return first
    return b"+" + struct.pack("<I", len(first)) + first + pack_floats(entropies)


def _unpack_both(packed: bytes) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if packed[:1] != b"+":
        return unpack(packed), ()
    end = 5 + struct.unpack_from("<I", packed, 1)[0]
    return unpack(packed[5:end]), unpack(packed[end:])


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's reader and writer of lists of `kind`; built on first use, which takes a while."""
    if kind not in _adapters:
        from pydantic import ConfigDict, TypeAdapter

        config = ConfigDict(ser_json_inf_nan="constants")
        _adapters[kind] = TypeAdapter(list[kind], config=config)
    return _adapters[kind]


def _fault(event: Event, error: Exception) -> PalaestraError:
    reason = " ".join(str(error).split())
    if isinstance(event, Call):
        detail = f"call {event.index} of '{event.policy}' cannot be recorded: {reason}"
        return InfrastructureFault("model", detail)
    detail = f"step {event.index} cannot be recorded: {reason}"
    try:
        to_json(event.action)
    except ValueError:
        return AgentFault("action", detail)
    return EnvironmentFault("rubbish", detail)
