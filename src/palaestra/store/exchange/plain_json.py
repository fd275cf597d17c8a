"""The common parts of the formats: core types as plain JSON and back, and atomic files.

A format holds some of an episode in fields of its own. The rest is in an extension
field named "palaestra", so that an episode is restored exactly; nothing is in both
places.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from palaestra import __version__
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.errors import InputError, RunVersionMismatch
from palaestra.core.graph import Call
from palaestra.core.message import Role
from palaestra.core.outcome import Outcome, Owner
from palaestra.store.codec import JSON, from_json, to_json
from palaestra.store.disk import replacing_file
from palaestra.store.schema import FORMAT

REST = "palaestra"
"""The name of the extension field for content without a field of its own."""

SPEAKERS: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "agent": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}

LONGEST = 10**9  # the largest offset of a time in seconds, for records of other programs


def plain(noun: object, *carried: str) -> dict[str, JSON]:
    """Return a value of a core type as JSON, without the fields that are `carried` elsewhere."""
    document: dict[str, JSON] = json.loads(to_json(noun))
    return {name: value for name, value in document.items() if name not in carried}


def built(kind: Any, document: Mapping[str, JSON]) -> Any:
    """Build a value of type `kind` from the JSON of `plain`; raises ValueError if invalid."""
    return from_json(kind, [json.dumps(document)])[0]


def head(episode: Episode) -> dict[str, JSON]:
    """Return an episode without its calls and steps as JSON, with the format's version."""
    return {"format": FORMAT, **plain(replace(episode, calls=(), steps=()), "calls", "steps")}


def whole(head: Mapping[str, JSON], calls: Iterable[Call], steps: Iterable[Step]) -> Episode:
    """Return the episode of a `head`, with these calls and steps."""
    episode: Episode = built(Episode, {**head, "calls": [], "steps": []})
    return replace(episode, calls=tuple(calls), steps=tuple(steps))


def check_version(found: JSON, where: str) -> None:
    """Check the version of stored episodes.

    Raises:
        RunVersionMismatch: `found` is not the version that this palaestra reads.
    """
    if found == FORMAT and not isinstance(found, bool):
        return
    age = "a newer" if isinstance(found, int) and found > FORMAT else "an older or unknown"
    raise RunVersionMismatch(
        f"{where} holds episodes of format {found!r}, and palaestra {__version__} reads format "
        f"{FORMAT}: {age} palaestra wrote it; read it there, and export it again."
    )


def unjudged(why: str) -> Outcome:
    """Return the outcome of a record without information about success: it is not scored."""
    return Outcome.error("unjudged", Owner.INFRASTRUCTURE, why)


def judged(steps: Sequence[Step], reward: float, success: bool) -> tuple[Step, ...]:
    """Return the steps with the last one ending the task with that reward."""
    if not steps:
        return ()
    last = steps[-1]
    end = replace(last.transition, reward=reward, terminated=True, success=success)
    return (*steps[:-1], replace(last, transition=end))


def made_step(index: int, call: int | None, action: Action, seen: str, valid: bool = True) -> Step:
    """Return a step of another program, which records neither rewards nor states."""
    return Step(index, call, action, Transition(Observation(seen), valid=valid), Signals())


def speaker(role: str) -> Role:
    """Return the role for a name that other programs use; an unknown name is a user."""
    return SPEAKERS.get(role, "user")


def checked(episode: Episode) -> Episode:
    """Return the episode of another program after validation; raises ValueError if invalid."""
    found: Episode = built(Episode, plain(episode))
    return found


def thoughts(reasoning: str) -> str:
    """Return separate reasoning in the form that open models write before their reply."""
    return f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""


def moment(start: datetime, seconds: float) -> datetime:
    """Return the time `seconds` after `start`; episodes record durations, not times."""
    late = seconds if math.isfinite(seconds) else 0.0
    return start.astimezone(UTC) + timedelta(seconds=min(max(late, 0.0), LONGEST))


# ── files ────────────────────────────────────────────────────────────────────


def write_lines(path: Path, documents: Iterable[JSON]) -> int:
    """Write one JSON document per line; return their number. Raises like `replacing_file`."""
    count = 0
    with replacing_file(Path(path)) as partial, partial.open("wb") as stream:
        for document in documents:
            stream.write(json.dumps(document).encode() + b"\n")
            count += 1
    return count


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        InputError: it is missing, unreadable or empty.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}. Check the path.") from error
    if not content.strip():
        raise InputError(f"{path} is empty; export it again.")
    return content


def read_documents(path: Path) -> Iterator[JSON]:
    """Yield the JSON documents of a file: one per line, or a single one over all lines.

    Raises:
        InputError: the file is missing, empty, truncated or not JSON.
    """
    content = read_bytes(path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text, so it is not JSON.") from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    single: list[JSON] = []
    with contextlib.suppress(ValueError):
        single.append(json.loads(text))
    yield from single
    for number, line in () if single else lines:
        try:
            document = json.loads(line)
        except ValueError as error:
            cut = number == lines[-1][0] > lines[0][0]
            what = "was cut off while it was written" if cut else "is not JSON"
            raise InputError(
                f"{path}, line {number} {what} ({error}); export the file again."
            ) from error
        yield document
