"""The stored form of core types: compact JSON, and packed numbers for tokens.

The encoding is lossless. Token ids and log-probabilities, which make up most of an
episode, are packed in the narrowest exact form; other numbers are JSON, whose floats
are written so that they are read with the same bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from palaestra.core.episode import Event, Step
from palaestra.core.errors import AgentFault, EnvironmentFault, InfrastructureFault, PalaestraError
from palaestra.core.graph import Call
from palaestra.core.tool import Tool

if TYPE_CHECKING:
    from palaestra.store.shapes import Shape

JSON: TypeAlias = Any  # None, bool, int, float, str, and lists and string-keyed mappings of these

_PACKED = frozenset({"prompt", "completion", "logprobs", "entropies"})
_SEPARATE = _PACKED | {"tools"}  # what a call's JSON leaves out if blobs hold its tools
_UNPACKED = '{"prompt":[],"completion":[],"logprobs":[],'  # how a call read without them begins


class EventRow(NamedTuple):
    """A call or a step as a row of the database."""

    kind: str  # "call" or "step"
    body: str  # JSON of the event, without the fields below
    prompt: bytes | None  # packed integers; None for a step
    completion: bytes | None  # packed integers; None for a step
    logprobs: bytes | None  # packed floats, then the entropies if known; None for a step
    tools: str | None = None  # the hash of a call's tools, if they are stored separately


class BlobStore(Protocol):
    """The store of data that many records share (see `blobs.py`)."""

    def keep(self, event: Event) -> str | None: ...

    def find(self, name: str) -> bytes: ...

    def tools(self, name: str | None) -> tuple[Tool, ...]: ...


def encode_event(event: Event, blobs: BlobStore | None = None) -> EventRow:
    """Return the row of one event; without `blobs`, it includes the shared data.

    Raises:
        AgentFault, EnvironmentFault, InfrastructureFault: the event holds something that
            is not JSON; the type says whether the agent, the environment or the model caused it.
    """
    separate = blobs is not None
    try:
        tools = None if blobs is None else blobs.keep(event)
        if isinstance(event, Step):
            return EventRow("step", to_json(event, external_images=separate), None, None, None)
        return EventRow(
            kind="call",
            body=to_json(event, _SEPARATE if separate else _PACKED, external_images=separate),
            prompt=pack_integers(event.prompt),
            completion=pack_integers(event.completion),
            logprobs=_pack_both(event.logprobs, event.entropies),
            tools=tools,
        )
    except (ValueError, TypeError, struct.error) as error:
        raise _fault(event, error) from error


def decode_events(rows: Sequence[EventRow], blobs: BlobStore | None = None) -> list[Event]:
    """Return the events of many rows, in their order; reading many at once is much faster."""
    find = None if blobs is None else blobs.find
    bodies = [_UNPACKED + row.body[1:] for row in rows if row.kind == "call"]
    calls = iter(from_json(Call, bodies, find))
    steps = iter(from_json(Step, [row.body for row in rows if row.kind == "step"], find))
    events: list[Event] = []
    for row in rows:
        if row.kind == "step":
            events.append(next(steps))
            continue
        logprobs, entropies = _unpack_both(row.logprobs or b"")
        read = next(calls)
        call = replace(
            read,
            prompt=unpack(row.prompt or b""),
            completion=unpack(row.completion or b""),
            logprobs=logprobs,
            entropies=entropies,
            tools=read.tools if blobs is None else blobs.tools(row.tools),
        )
        events.append(call)
    return events


def to_json(
    value: object, without: frozenset[str] = frozenset(), *, external_images: bool = False
) -> str:
    """Return a value of a core type as JSON, `without` some fields.

    With `external_images`, the bytes of images are left out as well.

    Raises:
        ValueError: it contains something that is not JSON.
    """
    kind: Any = type(value)
    return _shape(kind, external_images, without).write([value])[1:-1].decode()


def from_json(
    kind: Any, bodies: Sequence[str], find: Callable[[str], bytes] | None = None
) -> list[Any]:
    """Return the values of type `kind` that `to_json` wrote; `find` returns images' bytes."""
    return _shape(kind, find is not None, frozenset()).read(f"[{','.join(bodies)}]", find)


@cache
def _shape(kind: Any, external_images: bool, without: frozenset[str]) -> Shape:
    """Return the shape of lists of `kind`; building one takes a while."""
    from palaestra.store.shapes import Shape  # pydantic takes a while

    return Shape(kind, external_images, without)


def pack_integers(values: Sequence[int]) -> bytes:
    """Return one letter for the width, then the numbers; empty for no numbers."""
    if not values:
        return b""
    low, high = min(values), max(values)
    code = "q" if low < 0 or high >= 1 << 32 else "I" if high >= 1 << 16 else "H"
    return code.encode() + struct.pack(f"<{len(values)}{code}", *values)


def pack_floats(values: Sequence[float]) -> bytes:
    """Return floats packed like `pack_integers`, in single precision where that is lossless."""
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
    """Return the numbers packed by `pack_integers` or `pack_floats`."""
    if not packed:
        return ()
    code = chr(packed[0])
    count = (len(packed) - 1) // struct.calcsize(f"<{code}")
    return struct.unpack_from(f"<{count}{code}", packed, 1)


def _pack_both(logprobs: Sequence[float], entropies: Sequence[float]) -> bytes:
    """Return the packed log-probabilities; with entropies, "+", their size, and both."""
    first = pack_floats(logprobs)
    if not entropies:
        return first
    return b"+" + struct.pack("<I", len(first)) + first + pack_floats(entropies)


def _unpack_both(packed: bytes) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if packed[:1] != b"+":
        return unpack(packed), ()
    end = 5 + struct.unpack_from("<I", packed, 1)[0]
    return unpack(packed[5:end]), unpack(packed[end:])


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
