"""Suites: the tasks and environments that a result is about, in TOML, versioned and hashed.

The hash covers everything that a result depends on: name, version, entries and limits (not the
summary, nor the metrics shown). Results of suites with equal hashes are comparable; for any other
two, `differences` lists why they are not.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from palaestra.core.errors import InputError
from palaestra.core.task import Split

Positive = Annotated[int, Field(ge=1)]
METRICS = ("success", "progress", "reward", "turns", "invalid", "tokens", "seconds", "money")


class _Table(BaseModel):
    """A table of a suite: unknown keys are errors, values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Table):
    """Upper bounds of each episode; reaching one ends it as truncated, which is no success."""

    seconds: float | None = Field(None, gt=0, description="wall-clock time")
    tokens: int | None = Field(None, ge=1, description="sampled tokens")
    total_tokens: int | None = Field(None, ge=1, description="tokens read and sampled")
    tried: int | None = Field(None, ge=1, description="actions that searches try, besides turns")


LATER = ("total_tokens", "tried")  # limits that early suites did not have


class Entry(_Table):
    """Some tasks of one environment."""

    environment: str = Field(min_length=1, description="its id, as in `palaestra list`")
    split: Split = Split.TEST
    tasks: Positive | tuple[Annotated[int, Field(ge=0)], ...] = Field(
        description="how many, the first ones; or a list of their numbers"
    )
    weight: float = Field(1.0, gt=0, description="in the mean over the suite")
    repeats: int = Field(1, ge=1, description="episodes per task")
    turns: int | None = Field(
        None, ge=1, description="actions per episode; unset: the environment's own"
    )
    max_tokens: int | None = Field(None, ge=1, description="per reply; unset: the agent's own")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the tasks in their split."""
        return self.tasks if isinstance(self.tasks, tuple) else tuple(range(self.tasks))

    @model_validator(mode="after")
    def _tasks_are_some(self) -> Entry:
        if not self.numbers:
            raise ValueError("tasks: the list is empty; name at least one")
        if len(set(self.numbers)) < len(self.numbers):
            raise ValueError("tasks: a number is listed twice; use repeats")
        return self


class Suite(_Table):
    """A list of entries under one name."""

    name: str = Field(min_length=1)
    version: int = Field(ge=1, description="raised whenever the content changes")
    summary: str = ""
    metrics: tuple[str, ...] = ("success", "progress", "turns", "tokens", "seconds", "money")
    limits: Limits = Limits()
    entries: tuple[Entry, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _sound(self) -> Suite:
        for metric in self.metrics:
            if metric not in METRICS:
                raise ValueError(f"metrics: there is no '{metric}'; known: {', '.join(METRICS)}")
        named = [(entry.environment, entry.split) for entry in self.entries]
        for pair in named:
            if named.count(pair) > 1:
                raise ValueError(f"entries: '{pair[0]}' ({pair[1]}) is listed twice; list it once")
        return self

    @property
    def hash(self) -> str:
        """SHA-256 of what results depend on, in hexadecimal digits."""
        content = self.model_dump(mode="json", exclude={"summary", "metrics"})
        for name in LATER:  # suites without these limits keep their old hash
            if content["limits"][name] is None:
                del content["limits"][name]
        for entry, dumped in zip(self.entries, content["entries"], strict=True):
            dumped["tasks"] = sorted(entry.numbers)  # 3 and [0, 1, 2] are the same tasks
        content["entries"].sort(key=lambda dumped: (dumped["environment"], dumped["split"]))
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def title(self) -> str:
        """Name, version and the first digits of the hash, e.g. "small v1 (3f2a91c0)"."""
        return f"{self.name} v{self.version} ({self.hash[:8]})"


def load(file: Path | str) -> Suite:
    """Load the suite from a TOML file.

    Raises:
        InputError: the file does not exist, is not TOML, or has an invalid key or value.
    """
    path = Path(file)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The suite '{file}' cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"The suite '{file}' is not valid TOML: {error}.") from None
    try:
        return Suite.model_validate(data)
    except ValidationError as error:
        raise InputError(f"The suite '{file}': {_reason(error)}.") from None


def differences(a: Suite, b: Suite) -> list[str]:
    """Return why results of the two suites are not comparable; empty if they are."""
    if a.hash == b.hash:
        return []
    found = _changed("", a, b, ("name", "version"))
    found += _changed("limits.", a.limits, b.limits, tuple(Limits.model_fields))
    of_a = {(e.environment, e.split): e for e in a.entries}
    of_b = {(e.environment, e.split): e for e in b.entries}
    for pair in sorted(of_a.keys() | of_b.keys()):
        where = f"{pair[0]} ({pair[1]})"
        if pair not in of_a or pair not in of_b:
            found.append(f"only one of them has {where}")
            continue
        one, other = of_a[pair], of_b[pair]
        found += _changed(f"{where}: ", one, other, ("weight", "repeats", "turns", "max_tokens"))
        if set(one.numbers) != set(other.numbers):
            found.append(f"{where}: tasks {_format(one.numbers)} against {_format(other.numbers)}")
    return found


def _changed(where: str, a: object, b: object, names: Sequence[str]) -> list[str]:
    pairs = [(name, getattr(a, name), getattr(b, name)) for name in names]
    return [f"{where}{name} {x} against {y}" for name, x, y in pairs if x != y]


def _format(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)[:4]))
    return f"{len(numbers)} ({shown}{', …' if len(numbers) > 4 else ''})"


def _reason(error: ValidationError) -> str:
    """Describe the first mistake in one clause."""
    first = error.errors()[0]
    path = [part for part in first["loc"] if part not in ("constrained-int",)]
    key = ".".join(str(part) for part in path if not str(part).startswith("tuple["))
    if first["type"] == "extra_forbidden":
        return f"there is no key '{key}'"
    if first["type"] == "missing":
        return f"the key '{key}' is missing"
    why = first["msg"].removeprefix("Value error, ")
    return f"{key + ': ' if key else ''}{why[0].lower()}{why[1:]}"
