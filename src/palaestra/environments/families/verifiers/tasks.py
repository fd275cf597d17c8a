"""Settings and tasks of a verifiers environment, known before any rollout.

The tasks are the rows of its taskset. If the taskset's settings have a `split` that may be "train"
or "test", each of our splits has its own rows. Otherwise, as verifiers has no splits, the position
of a row decides: of each ten, the first is for test, the sixth for validation, the others for
training.
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
"""Possible names of a taskset's own splits."""


def settings_of(name: str) -> vf.EnvConfig:
    """Return the default settings of an installed module.

    Raises:
        InputError: the module does not exist, is not one of verifiers, or needs settings.
    """
    try:
        return vf.resolve_env_config({"taskset": {"id": name}})
    except ModuleNotFoundError as error:
        if error.name and error.name != name.replace("-", "_"):
            raise InputError(
                f"The verifiers environment '{name}' cannot be imported ({error}); "
                "install its requirements."
            ) from error
        raise InputError(
            f"The verifiers environment '{name}' does not exist: no module of that name is "
            "installed; install its package."
        ) from None
    except ImportError as error:
        raise InputError(
            f"The verifiers environment '{name}' cannot be imported ({error}); repair its package."
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(
                f"The verifiers environment '{name}' needs settings ('{place}': {first['msg']}), "
                "which an id cannot give; write a subclass whose settings() returns them."
            ) from None
        raise InputError(
            f"The module '{name}' exports no taskset of verifiers' `v1` interface ({error}); "
            "export a taskset class in __all__, as in verifiers 0.2 and later."
        ) from None


def role_of(name: str, settings: vf.EnvConfig) -> str:
    """Return the agent's only role.

    Raises:
        InputError: a single agent of ours cannot play the environment.
    """
    roles = agent_config_fields(settings)
    if len(roles) != 1:
        raise InputError(
            f"The verifiers environment '{name}' has several roles ({', '.join(roles)}), each with "
            "its own model; choose an environment with one role."
        )
    [role] = roles
    own = default_harness_id(settings.taskset.id)
    if own != "bash" or roles[role].harness is not None:
        raise InputError(
            f"The verifiers environment '{name}' has its own agent program, so another agent "
            "cannot play it; choose an environment without one."
        )
    if (key := _model_in(settings.taskset, "taskset")) is not None:
        raise InputError(
            f"The verifiers environment '{name}' is scored by a judge model ('{key}'), which "
            "palaestra does not provide; choose an environment with computed rewards."
        )
    if task_type(settings.taskset.id).NEEDS_CONTAINER:
        raise InputError(
            f"The tasks of the verifiers environment '{name}' need a container, but run in this "
            "process; choose an environment without containers."
        )
    return role


def alone(settings: vf.EnvConfig) -> bool:
    """Return whether the environment is only a taskset, without an engine or a user."""
    return type(settings) is SingleAgentEnvConfig


def offers_tools(settings: vf.EnvConfig) -> bool:
    """Return whether the tasks have tools, which are served when a task begins."""
    taskset = next(iter(rows_of(settings).streams.values())).taskset
    own = settings.taskset
    return bool(taskset.toolsets(own) or taskset.task_type().toolsets(own.task))


def _model_in(thing: Any, place: str) -> str | None:
    """Return the key of the first model client in these settings, or None."""
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
    """The tasks of a taskset by position, created lazily."""

    taskset: vf.Taskset[Any, Any]
    _made: list[Any] = field(default_factory=list)
    _rest: Iterator[Any] | None = None

    def __len__(self) -> int:
        """Return the number of tasks of a bounded taskset."""
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
    """The streams from which the splits take their tasks."""

    streams: Mapping[Split, Stream]
    apart: bool  # each split has its own stream

    def listed(self, environment: str) -> TaskSet:
        """Return palaestra's tasks: positions in a bounded stream, seeds in an endless one."""
        if not all(stream.taskset.bounded for stream in self.streams.values()):
            return TaskSet(environment)
        rows = {
            split: [{"position": at} for at in range(len(stream)) if self.belongs(split, at)]
            for split, stream in self.streams.items()
        }
        return ListedTasks(environment, rows=rows)

    def belongs(self, split: Split, position: int) -> bool:
        """Return whether the task at that position of the split's stream is the split's."""
        return self.apart or split_of(position) is split


def split_of(position: int) -> Split:
    """Return the split of a row of a taskset without splits."""
    return {0: Split.TEST, 5: Split.VALIDATION}.get(position % 10, Split.TRAIN)


def rows_of(settings: vf.EnvConfig) -> Rows:
    """Load the tasks of these settings.

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
            f"The tasks of the verifiers environment '{taskset.id}' cannot be loaded "
            f"({type(error).__name__}: {error}); repair its settings or its package."
        ) from error


def _own_splits(kind: type[vf.TasksetConfig]) -> dict[Split, str]:
    """Return the taskset's own names of our splits."""
    part = kind.model_fields.get("split")
    if part is None or get_origin(part.annotation) is not Literal:
        return {}
    known = get_args(part.annotation)
    found = {split: [name for name in names if name in known] for split, names in NAMES.items()}
    return {split: names[0] for split, names in found.items() if names}
