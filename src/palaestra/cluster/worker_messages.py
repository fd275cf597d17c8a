"""The messages between a driver and its workers.

A worker opens two connections to its driver: one for its sessions, one on which a thread of it
sends heartbeats, so that a long computation does not make it look dead. Each begins with the run's
secret and a greeting in JSON. Only after the secret does either side read pickles, which can
execute anything: palaestra trusts the machines of a cluster as Ray does.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import pickle
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from palaestra import __version__
from palaestra.cluster.leases import Lease
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, Event
from palaestra.core.model import Generation, Model, Prompt, Renderer, Sampling
from palaestra.rollout.groups import Job

SECRET = 32  # bytes
SIZE = 8  # bytes of the length before a message
BEAT = 1.0  # seconds between two heartbeats


@dataclass(frozen=True, slots=True)
class Call:
    """Where a worker finds its driver, and how it proves that it was asked for."""

    host: str
    port: int
    secret: bytes
    birth: int


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a worker says of itself first; those of a run must have the same `versions`."""

    birth: int
    node: str
    pid: int
    versions: Mapping[str, str]
    beats: bool = False  # whether this is the connection of the heartbeats


@dataclass(frozen=True, slots=True)
class Policy:
    """What a session has to know of a model that is not in its process."""

    name: str
    renderer: Renderer | None
    chooses: bool
    native_tools: bool
    limits_reasoning: bool
    constrains: bool
    scores_answers: bool
    max_tokens: int | None

    @classmethod
    def of(cls, model: Model) -> Policy:
        return cls(
            model.name,
            model.renderer,
            model.chooses,
            model.native_tools,
            model.limits_reasoning,
            model.constrains,
            model.scores_answers,
            model.max_tokens,
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """What the sessions of a rollout have in common."""

    agent: Agent
    models: Mapping[str, Policy | Model]  # by role; a Model replies where the session is
    budget: Budget
    player_budget: Budget
    sampling: Sampling
    seed: int
    processes: int  # that host the environments of a worker; 0: the worker itself
    timeout: float  # of one call of an environment in such a process, in seconds
    probes: bool  # see `Rollout.probes`


# ── from the driver ──────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Begin:
    """Run a session; the scene is sent with the first session in it."""

    lease: Lease
    scene: str  # its hash
    pickled: bytes | None  # the scene
    job: Job
    past: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a session; nothing more is expected of it."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to a prompt, or the error."""

    number: int
    reply: Generation | Exception


# ── from a worker ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt for the model of a role."""

    lease: Lease
    number: int
    role: str
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Wrote:
    """An event of a session, in its order."""

    lease: Lease
    event: Event
    observation: Observation | None  # the first one of the episode, with its first event


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a session: its episode without the events, which were sent before, or an error."""

    lease: Lease
    result: Episode | Exception


def dump(message: object) -> bytes:
    """Return a message with its length."""
    data = pickle.dumps(_portable(message), protocol=5)
    return len(data).to_bytes(SIZE, "big") + data


async def read(reader: asyncio.StreamReader) -> Any:
    """Return the next message; None at the end of the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(SIZE), "big")
        return _plain(pickle.loads(await reader.readexactly(size)))
    except (asyncio.IncompleteReadError, OSError):
        return None


def greet(secret: bytes, greeting: Greeting) -> bytes:
    """Return the first bytes of a connection."""
    about = {
        "birth": greeting.birth,
        "node": greeting.node,
        "pid": greeting.pid,
        "versions": dict(greeting.versions),
        "beats": greeting.beats,
    }
    data = json.dumps(about).encode()
    return secret + len(data).to_bytes(SIZE, "big") + data


async def greeted(reader: asyncio.StreamReader, secret: bytes) -> Greeting | None:
    """Return the greeting of a connection; None if it is not one of this run's workers."""
    try:
        if not hmac.compare_digest(await reader.readexactly(SECRET), secret):
            return None
        size = int.from_bytes(await reader.readexactly(SIZE), "big")
        return Greeting(**json.loads(await reader.readexactly(size)))
    except (asyncio.IncompleteReadError, OSError):
        return None


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all machines; imports nothing."""
    found = {"palaestra": __version__, "Python": platform.python_version()}
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        found["torch"] = "none"
    return found


# ── details ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Error:
    """An exception that is rebuilt without its constructor, whose arguments may differ."""

    kind: type[Exception]
    args: tuple[Any, ...]
    fields: dict[str, Any]


def _portable(message: object) -> object:
    for field in ("reply", "result"):
        error = getattr(message, field, None)
        if isinstance(error, Exception):
            kept = _Error(type(error), error.args, vars(error))
            return type(message), {**_fields(message), field: kept}
    return message


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__slots__}


def _plain(found: Any) -> Any:
    if not isinstance(found, tuple):
        return found
    kind, fields = found
    for name, value in fields.items():
        if isinstance(value, _Error):
            error = value.kind.__new__(value.kind, *value.args)
            error.args = value.args
            vars(error).update(value.fields)
            fields[name] = error
    return kind(**fields)
