"""Recipes: the typed configuration of a training run, in TOML.

Every key is checked. A key that is unknown, or that the run cannot honour, is an error that names
the key and the nearest valid one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.store.schema import Durability
from palaestra.training.adapter_sections import with_adapters
from palaestra.training.recipe_sections import (
    AgentPart,
    ClusterPart,
    EnvironmentPart,
    Evaluation,
    Imitation,
    ModelPart,
    Section,
    Training,
)
from palaestra.training.reinforcement_section import Reinforcement
from palaestra.training.renamed_keys import (
    refuse_renamed,
    refuse_renamed_key,
    with_present_names,
)
from palaestra.training.stage_sections import STAGES, AnyStage


class Recipe(Section):
    """The configuration of one training run."""

    summary: str = ""
    seed: int = 1
    deterministic: bool = Field(False, description="bit-equal reruns, at some cost in speed")
    concurrency: int = Field(64, ge=1, description="concurrent sessions")
    minutes: float | None = Field(
        None,
        gt=0,
        description="time of the whole run, tests included: RL ends early enough; unset: no limit",
    )
    checkpoint_every: int = Field(10, ge=1, description="RL steps between checkpoints")
    durability: Durability = Field(
        Durability.NORMAL,
        description="what the record survives: a crash (normal), or a power cut too (full)",
    )
    log: tuple[str, ...] = Field(
        (), description="trackers that also receive metrics: tensorboard, wandb, mlflow or trackio"
    )
    environment: EnvironmentPart
    agent: AgentPart = AgentPart()
    model: ModelPart = ModelPart()
    training: Training = Training()
    imitation: Imitation = Imitation()
    rl: Reinforcement = Reinforcement()
    evaluation: Evaluation = Evaluation()
    stage: tuple[AnyStage, ...] = Field(
        (), description="a program of stages, in place of the tables imitation and rl; unset: these"
    )
    cluster: ClusterPart | None = Field(
        None, description="the machines of `--on ray`; unset: its defaults"
    )

    @field_validator("log", mode="before")
    @classmethod
    def _one_tracker_needs_no_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _stages_replace_tables(cls, data: object) -> object:
        if not isinstance(data, Mapping) or not data.get("stage"):
            return data
        idle = {"imitation": ("demonstrations", 0), "rl": ("steps", 0)}
        for table, (key, nothing) in idle.items():
            if (
                dict(data.get(table) or {}).get(key, nothing if not data.get(table) else 1)
                != nothing
            ):
                raise ValueError(
                    f"the table {table} has no effect beside stages; write its keys into a stage "
                    f"that does '{'imitate' if table == 'imitation' else 'reinforce'}'"
                )
        return {**data, **{t: data.get(t) or {key: value} for t, (key, value) in idle.items()}}

    @model_validator(mode="before")
    @classmethod
    def _what_stages_train_has_adapters(cls, data: object) -> object:
        return with_adapters(data) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _stages_have_no_clock(self) -> Recipe:
        if self.stage and self.minutes is not None:
            raise ValueError("minutes has no effect on stages; set fewer rounds, tasks or steps")
        return self

    @model_validator(mode="after")
    def _deterministic_runs_ignore_clocks(self) -> Recipe:
        if self.deterministic and self.minutes is not None:
            raise ValueError("deterministic = true is impossible with minutes; unset one")
        for name in ("asynchronous", "actor", "quorum"):
            if self.deterministic and getattr(self.rl, name):
                raise ValueError(f"deterministic = true is impossible with rl.{name}; unset one")
        return self

    @model_validator(mode="after")
    def _one_kind_of_actor(self) -> Recipe:
        if self.acting_elsewhere == "cluster.engines" and self.rl.actor is not None:
            raise ValueError("rl.actor and cluster.engines both make the rollouts; unset one")
        if self.acting_elsewhere == "cluster.engines" and not (self.rl.steps or self.stage):
            raise ValueError("cluster.engines has no effect with rl.steps = 0; unset it")
        for name in ("conflict", "privileged"):
            together = self.cluster is not None and self.cluster.learners > 1
            if together and getattr(self.rl, name) is not None:
                raise ValueError(
                    f"rl.{name} is impossible with cluster.learners above 1; unset one"
                )
        if self.cluster is not None and self.cluster.engine == "vllm":
            self._check_vllm()
        return self

    def _check_vllm(self) -> None:
        if self.deterministic:
            raise ValueError(
                "deterministic = true is impossible with cluster.engine = 'vllm', whose replies "
                "depend on what else it computes; unset one"
            )
        if self.rl.on_update not in (None, "drain"):
            raise ValueError(
                f"rl.on_update = '{self.rl.on_update}' is impossible with cluster.engine = 'vllm', "
                "which does not say which weights sampled a token; use drain"
            )
        if self.model.schedule != "fcfs":
            raise ValueError("model.schedule does not reach vLLM (cluster.engine); unset one")

    @property
    def sharing(self) -> int:
        """The number of processes that divide gradients and the optimiser's state among them."""
        return self.cluster.learners if self.cluster is not None and self.cluster.shard else 1

    @property
    def acting_elsewhere(self) -> str | None:
        """The key by which other processes act in the rollouts of RL; None: this one acts."""
        if self.cluster is not None and self.cluster.engines is not None:
            return "cluster.engines"
        return None if self.rl.actor is None else "rl.actor"

    @model_validator(mode="after")
    def _external_servers_schedule_themselves(self) -> Recipe:
        if (self.rl.actor or "").startswith("served:") and self.model.schedule != "fcfs":
            raise ValueError("model.schedule does not reach the server of rl.actor; unset one")
        return self


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with palaestra."""
    return sorted(
        f.name[:-5] for f in files("palaestra.recipes").iterdir() if f.name[-5:] == ".toml"
    )


def load(
    name: str, overrides: Sequence[str] = (), sections: Mapping[str, Any] | None = None
) -> Recipe:
    """Return the recipe of that name or TOML path.

    Args:
        name: of the recipe, or its file.
        overrides: `key=value`; `key=` unsets a key.
        sections: values that win over `overrides`, tables as mappings; None unsets a key.

    Raises:
        UnknownName: no recipe or key of that name.
        RecipeError: a value does not fit, a key was renamed, or the file is not TOML.
    """
    data = _read(name)
    told = _subject(data)
    for override in overrides:
        key, found, value = override.partition("=")
        if not found:
            raise RecipeError(f"'{override}' is not of the form key=value; write e.g. rl.steps=10.")
        refuse_renamed_key(key.strip())
        _put(data, key.strip().split("."), _value(value.strip()))
    refuse_renamed(sections or {})
    _merge(data, sections or {})
    _drop_replaced(data, _read(name))
    recipe = check(data)
    if told == _subject(data) or recipe.summary != _read(name).get("summary"):
        return recipe
    # the file's summary is about another model or environment
    about = f"{recipe.model.name} on {recipe.environment.id}, with the recipe {name}"
    return recipe.model_copy(update={"summary": about})


def check(data: dict[str, Any]) -> Recipe:
    """Return the recipe of a dictionary.

    Raises:
        RecipeError: a key is unknown or was renamed, or a value does not fit.
    """
    refuse_renamed(data)
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise _explain(error) from None


def read_recorded(recorded: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a run recorded, perhaps under older names of keys.

    Raises:
        RecipeError: a key is unknown, or a value does not fit.
    """
    return check(with_present_names(recorded))


def keys(section: type[BaseModel] = Recipe, prefix: str = "") -> list[str]:
    """Return all keys of a recipe, dotted."""
    found: list[str] = []
    for name, field in section.model_fields.items():
        inner = _section_of(field.annotation)
        found += keys(inner, f"{prefix}{name}.") if inner else [prefix + (field.alias or name)]
    return found


def _read(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise InputError(f"There is no recipe file '{name}'; check the path.")
        text = path.read_text()
    elif name in recipe_names():
        text = files("palaestra.recipes").joinpath(f"{name}.toml").read_text()
    else:
        raise UnknownName("recipe", name, recipe_names())
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"The recipe '{name}' is not valid TOML: {error}.") from None


def _drop_replaced(data: dict[str, Any], file: Mapping[str, Any]) -> None:
    """Drop the file's own tables where stages were given in their place."""
    if data.get("stage") and not file.get("stage"):
        for table in ("imitation", "rl"):
            if data.get(table) == file.get(table):
                data.pop(table, None)


def _subject(data: Mapping[str, Any]) -> list[Any]:
    """Return what a recipe's summary is about: the environment's id and the model's name."""
    sections = [(data.get("environment"), "id"), (data.get("model"), "name")]
    return [section.get(key) if isinstance(section, Mapping) else None for section, key in sections]


def _value(text: str) -> Any:
    """Return a TOML value; words without quotes are strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    for at, part in enumerate(path[:-1]):
        inner = data.setdefault(part, {})
        if isinstance(inner, list) and part == "stage":
            if len(path) < at + 3:
                raise RecipeError(f"'{'.'.join(path)}' names a stage; add one of its keys.")
            _put(_stage(inner, path[at + 1]), path[at + 2 :], value)
            return
        if not isinstance(inner, dict):
            raise RecipeError(f"'{'.'.join(path)}' is not a key: '{part}' is a value, not a table.")
        data = inner
    if value == "":
        data.pop(path[-1], None)
    else:
        data[path[-1]] = value


def _stage(stages: list[Any], name: str) -> dict[str, Any]:
    """Return the table of the stage of that name, also within repeats."""
    named = {str(table.get("name") or table.get("do")): table for table in _tables(stages)}
    if name not in named:
        raise UnknownName("stage", name, named)
    return named[name]


def _tables(stages: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for table in stages:
        if isinstance(table, dict):
            yield table
            yield from _tables(table.get("stages") or ())


def _merge(data: dict[str, Any], sections: Mapping[str, Any]) -> None:
    for key, value in sections.items():
        if value is None:
            data.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(data.get(key), dict):
            _merge(data[key], value)
        else:
            data[key] = value


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if getattr(annotation, "__origin__", None) is dict:
        return None  # its keys are the user's own
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate
    return None


def _explain(error: ValidationError) -> InputError:
    first = error.errors()[0]
    path, known = _path(first["loc"])
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f" Did you mean '{near[0]}'?" if near else " `palaestra train --dry-run` shows all."
        return RecipeError(f"There is no recipe key '{key}'.{hint}")
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return RecipeError(f"The recipe lacks the key '{key}'.")
    if first["type"].startswith("union_tag"):
        does = first["input"].get("do") if isinstance(first["input"], dict) else None
        if does is None:
            return RecipeError(f"{key} lacks the key 'do'; it is one of: {', '.join(STAGES)}.")
        return UnknownName("kind of stage", str(does), STAGES)
    where = f"The recipe key '{key}' cannot be {first['input']!r}: " if key else "The recipe: "
    if not isinstance(first["input"], (str, int, float, bool, list, type(None))):
        where = f"The recipe: {key}: " if key.startswith("stage") else "The recipe: "
    return RecipeError(f"{where}{reason[0].lower()}{reason[1:]}.")


def _path(loc: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """Return the keys that lead to a value, without pydantic's tags, and all that could be meant.

    Stages are numbered from 1.
    """
    if loc[:1] != ("stage",):
        return [str(part) for part in loc], keys()
    path: list[str] = []
    section: type[BaseModel] = Recipe
    for at, part in enumerate(loc):
        before = loc[at - 1] if at else None
        if isinstance(part, int):
            path[-1] += f"[{part + 1}]"
        elif isinstance(before, int) and part in STAGES:
            section = STAGES[part]
        elif not (isinstance(before, int) and part in ("speaker", "run", "stage")):
            path.append(part)
    inside = path[:-1]
    return path, [".".join([*inside, name]) for name in keys(section)]
