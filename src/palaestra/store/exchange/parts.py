"""What the formats have in common: nouns as plain JSON and back, and files written whole.

A format carries some of an episode in fields of its own. The rest stands beside them
under the name "palaestra", where the format has a place for more, so that an episode
comes back as it was; nothing stands in both places.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from palaestra import __version__
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.errors import InputError, RunVersionMismatch
from palaestra.core.graph import Call
from palaestra.core.message import Speaker
from palaestra.core.outcome import Outcome, Owner
from palaestra.store.codec import JSON, from_json, to_json
from palaestra.store.disk import is_full, storage_full, sync
from palaestra.store.schema import FORMAT

REST = "palaestra"
"""Where a format keeps what it has no field for."""

SPEAKERS: dict[str, Speaker] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "agent": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}

LONGEST = 10**9  # seconds that a clock may be moved by; records of other programs hold anything


def plain(noun: object, *carried: str) -> dict[str, JSON]:
    """A noun of the core as JSON, without the fields that are `carried` elsewhere."""
    document: dict[str, JSON] = json.loads(to_json(noun))
    return {name: value for name, value in document.items() if name not in carried}


def built(kind: Any, document: Mapping[str, JSON]) -> Any:
    """The noun of type `kind` that `plain` took apart; raises ValueError for anything else."""
    return from_json(kind, [json.dumps(document)])[0]


def head(episode: Episode) -> dict[str, JSON]:
    """All of an episode but its calls and steps, with the version of the form."""
    return {"format": FORMAT, **plain(replace(episode, calls=(), steps=()), "calls", "steps")}


def whole(head: Mapping[str, JSON], calls: Iterable[Call], steps: Iterable[Step]) -> Episode:
    """The episode of a `head`, with these calls and steps."""
    episode: Episode = built(Episode, {**head, "calls": [], "steps": []})
    return replace(episode, calls=tuple(calls), steps=tuple(steps))


def check_version(found: JSON, where: str) -> None:
    """Refuse what another version of palaestra has written.

    Raises:
        RunVersionMismatch: `found` is not the version of episodes that is read here.
    """
    if found == FORMAT and not isinstance(found, bool):
        return
    age = "a newer" if isinstance(found, int) and found > FORMAT else "an older or unknown"
    raise RunVersionMismatch(
        f"{where} holds episodes of format {found!r}, and palaestra {__version__} reads format "
        f"{FORMAT}: {age} palaestra wrote it; read it there, and export it again."
    )


def unjudged(why: str) -> Outcome:
    """The outcome of a record that says nothing of success: it counts neither way."""
    return Outcome.error("unjudged", Owner.INFRASTRUCTURE, why)


def judged(steps: Sequence[Step], reward: float, success: bool) -> tuple[Step, ...]:
    """The steps, the last of which ends the task with that reward."""
    if not steps:
        return ()
    last = steps[-1]
    end = replace(last.transition, reward=reward, terminated=True, success=success)
    return (*steps[:-1], replace(last, transition=end))


def made_step(index: int, call: int | None, action: Action, seen: str, valid: bool = True) -> Step:
    """A step of another program, which records neither rewards nor states."""
    return Step(index, call, action, Transition(Observation(seen), valid=valid), Signals())


def speaker(role: str) -> Speaker:
    """Who says a message, of the names that other programs use; whoever is unknown is a user."""
    return SPEAKERS.get(role, "user")


def checked(episode: Episode) -> Episode:
    """The episode of another program, whose fields hold what they should; else ValueError."""
    found: Episode = built(Episode, plain(episode))
    return found


def thoughts(reasoning: str) -> str:
    """Reasoning that a record keeps apart, as open models write it before their reply."""
    return f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""


def moment(start: datetime, seconds: float) -> datetime:
    """`seconds` after `start`; episodes record durations, not times."""
    late = seconds if math.isfinite(seconds) else 0.0
    return start.astimezone(UTC) + timedelta(seconds=min(max(late, 0.0), LONGEST))


# ── files ────────────────────────────────────────────────────────────────────


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` once it is whole.

    Raises:
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    partial = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with partial.open("wb") as stream:
            yield stream
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    except OSError as error:
        if is_full(error):
            raise storage_full(path.name, path.parent, error) from error
        raise InputError(f"{path} cannot be written: {error}. Give another path.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_lines(path: Path, documents: Iterable[JSON]) -> int:
    """Write one JSON document per line; returns how many. Raises as `replacing` does."""
    count = 0
    with replacing(Path(path)) as stream:
        for document in documents:
            stream.write(json.dumps(document).encode() + b"\n")
            count += 1
    return count


def read_bytes(path: Path) -> bytes:
    """All of a file.

    Raises:
        InputError: there is none, it cannot be read, or it is empty.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}. Check the path.") from error
    if not content.strip():
        raise InputError(f"{path} is empty; export it again.")
    return content


def read_documents(path: Path) -> Iterator[JSON]:
    """The JSON documents of a file: one on each line, or a single one over all lines.

    Raises:
        InputError: there is no such file, it is empty, no JSON, or it was cut off.
    """
    content = read_bytes(path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8, so it holds no JSON.") from error
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


@contextmanager
def understood(where: str, kind: str) -> Iterator[None]:
    """Say in one sentence that something at `where` is not the `kind` it should be.

    Raises:
        InputError: in place of what reading a document of another shape raises.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where} is no {kind} that can be read: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    listed = getattr(error, "errors", None)  # of pydantic
    if callable(listed):
        first = listed()[0]
        place = ".".join(str(part) for part in first["loc"] if part != 0)
        return f"{place or 'it'}: {first['msg'].lower()}"
    return " ".join(str(error).split())[:200]
