"""What is known of a verifiers environment before it is played: its settings and its tasks.

Its tasks are the rows of its taskset. Where the taskset's settings have a `split` that may be
"train" or "test", each of our splits has the rows of its own; otherwise, as verifiers has no
splits, the rows are dealt by their position: of ten, the first is for test, the sixth for
validation and the others for training.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args, get_origin

import verifiers.v1 as vf
from pydantic import BaseModel, ValidationError
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.envs.single_agent import SingleAgentEnvConfig
from verifiers.v1.utils.loaders import default_harness_id, task_type

from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Split, TaskSet

NAMES = {
    Split.TRAIN: ("train",),
    Split.VALIDATION: ("validation", "val", "dev"),
    Split.TEST: ("test", "eval"),
}
"""What a taskset's own splits may be called."""


def settings_of(name: str) -> vf.EnvConfig:
    """The settings of an installed module, as it has them by default.

    Raises:
        InputError: there is no such module, it is none of verifiers, or it needs settings.
    """
    try:
        return vf.resolve_env_config({"taskset": {"id": name}})
    except ModuleNotFoundError as error:
        if error.name and error.name != name.replace("-", "_"):
            raise InputError(
                f"The verifiers environment '{name}' cannot be imported: {error}; install what "
                "it needs."
            ) from error
        raise InputError(
            f"There is no verifiers environment '{name}': no module of that name is installed; "
            "install its package."
        ) from None
    except ImportError as error:
        raise InputError(
            f"The verifiers environment '{name}' cannot be imported: {error}."
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(
                f"The verifiers environment '{name}' needs settings ('{place}': {first['msg']}), "
                "which an id cannot give; write a subclass whose settings() gives them."
            ) from None
        raise InputError(
            f"The module '{name}' exports no taskset of verifiers' present interface (a class "
            f"named in __all__), such as its versions from 0.2 on have: {error}"
        ) from None


def role_of(name: str, settings: vf.EnvConfig) -> str:
    """The one role that an agent plays there.

    Raises:
        InputError: an agent of ours cannot play it alone; says why.
    """
    roles = agent_config_fields(settings)
    if len(roles) != 1:
        raise InputError(
            f"The verifiers environment '{name}' is played by several roles "
            f"({', '.join(roles)}), each with a model of its own; palaestra plays those with one."
        )
    [role] = roles
    own = default_harness_id(settings.taskset.id)
    if own != "bash" or roles[role].harness is not None:
        raise InputError(
            f"The verifiers environment '{name}' brings an agent program of its own, so there is "
            "no seat in it for another agent."
        )
    if (place := _model_in(settings.taskset, "taskset")) is not None:
        raise InputError(
            f"The verifiers environment '{name}' is scored by a judge model ('{place}'), which "
            "palaestra does not lend to it; take one whose rewards are computed."
        )
    if task_type(settings.taskset.id).NEEDS_CONTAINER:
        raise InputError(
            f"The tasks of the verifiers environment '{name}' need a container, and are played "
            "in this process here; take one that needs none."
        )
    return role


def alone(settings: vf.EnvConfig) -> bool:
    """Whether the environment is a taskset only, without an engine or user in it."""
    return type(settings) is SingleAgentEnvConfig


def _model_in(thing: Any, place: str) -> str | None:
    """Where these settings have the address of a model."""
    if isinstance(thing, vf.BaseClientConfig):
        return place
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(thing, BaseModel):
        parts = thing
    elif isinstance(thing, (list, tuple)):
        parts = ((str(number), part) for number, part in enumerate(thing))
    elif isinstance(thing, dict):
        parts = ((str(key), part) for key, part in thing.items())
    found = (_model_in(part, f"{place}.{name}") for name, part in parts)
    return next((place for place in found if place is not None), None)


# ── tasks ────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Stream:
    """The tasks of a taskset by their positions, made as far as they were asked for."""

    taskset: vf.Taskset[Any, Any]
    _made: list[Any] = field(default_factory=list)
    _rest: Iterator[Any] | None = None

    def __len__(self) -> int:
        """How many there are; of a taskset that ends."""
        self._read(None)
        return len(self._made)

    def at(self, position: int) -> vf.Task[Any, Any, Any] | None:
        self._read(position + 1)
        return self._made[position] if 0 <= position < len(self._made) else None

    def _read(self, count: int | None) -> None:
        if self._rest is None:
            self._rest = iter(self.taskset)
        missing = None if count is None else max(0, count - len(self._made))
        self._made += itertools.islice(self._rest, missing)


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the tasks of each split come from."""

    streams: Mapping[Split, Stream]
    apart: bool  # each split has a stream of its own

    def listed(self, environment: str) -> TaskSet:
        """The tasks of palaestra: positions in a stream, or, without an end, seeds."""
        if not all(stream.taskset.bounded for stream in self.streams.values()):
            return TaskSet(environment)
        rows = {
            split: [{"position": at} for at in range(len(stream)) if self.belongs(split, at)]
            for split, stream in self.streams.items()
        }
        return ListedTasks(environment, rows=rows)

    def belongs(self, split: Split, position: int) -> bool:
        """Whether the task at that position of the split's stream is the split's."""
        return self.apart or dealt(position) is split


def dealt(position: int) -> Split:
    """Whose a row is, where the taskset has no splits."""
    return {0: Split.TEST, 5: Split.VALIDATION}.get(position % 10, Split.TRAIN)


def rows_of(settings: vf.EnvConfig) -> Rows:
    """The tasks of these settings.

    Raises:
        InputError: they cannot be loaded.
    """
    kind: Any = type(settings.taskset)
    return _rows(kind, settings.taskset.model_dump_json())


@cache
def _rows(kind: type[vf.TasksetConfig], document: str) -> Rows:
    taskset = kind.model_validate_json(document)
    own = _own_splits(kind)
    try:
        if Split.TRAIN in own and len(own) > 1:
            streams = {
                split: Stream(vf.load_taskset(taskset.model_copy(update={"split": named})))
                for split, named in own.items()
            }
            return Rows(streams, apart=True)
        stream = Stream(vf.load_taskset(taskset))
        return Rows(dict.fromkeys(Split, stream), apart=False)
    except Exception as error:
        raise InputError(
            f"The tasks of the verifiers environment '{taskset.id}' cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error


def _own_splits(kind: type[vf.TasksetConfig]) -> dict[Split, str]:
    """Our splits with the names that the taskset has for them."""
    part = kind.model_fields.get("split")
    if part is None or get_origin(part.annotation) is not Literal:
        return {}
    known = get_args(part.annotation)
    found = {split: [name for name in names if name in known] for split, names in NAMES.items()}
    return {split: names[0] for split, names in found.items() if names}
