"""What stages have in common: a name, the episodes they read, and the version they start with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from palaestra.learning.curricula.feedback import apportioned
from palaestra.training.recipe_sections import Section

BASE = "base"  # the policy with which the run begins
LAST, ALL = "last", "all"


class FromSpeaker(Section):
    """Episodes that the stage records itself, on training tasks that were not used before."""

    speaker: str = Field(
        min_length=1,
        description="expert (the environment's), policy, random (actions), or a model's name",
    )
    demonstrations: int = Field(32, ge=1, description="number of episodes")
    levels: dict[str, float] = Field(
        {},
        description="environments to record in, by their parts of the episodes, such as "
        '{"babyai/GoToObjS6" = 2, "babyai/PickupLoc" = 1}, or a list for equal parts; unset: the '
        "recipe's environment",
    )

    @field_validator("levels", mode="before")
    @classmethod
    def _listed_levels_have_equal_parts(cls, levels: object) -> object:
        if not isinstance(levels, list | tuple):
            return levels
        if len(set(map(str, levels))) < len(levels):
            raise ValueError("an environment is named twice; give it a larger part instead")
        return {str(level): 1.0 for level in levels}

    @model_validator(mode="after")
    def _each_level_has_episodes(self) -> FromSpeaker:
        if not all(part > 0 for part in self.levels.values()):
            raise ValueError("each part of levels is above 0; leave out environments without one")
        if 0 in (counts := self.counts("")).values():
            level = next(name for name, count in counts.items() if not count)
            raise ValueError(
                f"demonstrations = {self.demonstrations} leaves none for '{level}'; set more, or "
                "leave it out"
            )
        return self

    def counts(self, environment: str) -> dict[str, int]:
        """Return how many episodes are recorded in each environment, by largest remainders.

        Args:
            environment: of the recipe.
        """
        if not self.levels:
            return {environment: self.demonstrations}
        total = sum(self.levels.values())
        shares = [part / total for part in self.levels.values()]
        return dict(zip(self.levels, apportioned(self.demonstrations, shares), strict=True))


class FromStage(Section):
    """Episodes that an earlier stage recorded."""

    stage: str = Field(description="name of the stage")
    rounds: Literal["last", "all"] = Field(
        "last", description="of a stage in a repeat: those of its last round so far, or of all"
    )
    judged: str | None = Field(
        None,
        description="a stage that judges, or learned to predict success, whose verdicts replace "
        "the outcomes; unset: the true ones",
    )
    labelled: str | None = Field(
        None,
        description="a stage that labels: the actions that it named replace those that it did not "
        "read; unset: the true ones",
    )


class FromRun(Section):
    """Episodes of another run."""

    run: str = Field(description="its folder")
    label: str | None = Field(None, description="only episodes with this label by a person")
    judge: str | None = Field(None, description="only episodes that this judge marks as solved")
    environment: str | None = Field(
        None, description="of its episodes, such as synthesised ones; unset: the recipe's"
    )
    demonstrations: int = Field(1_000_000, ge=1, description="at most so many")


def _kind_of_source(value: object) -> str:
    if isinstance(value, FromSpeaker | FromStage | FromRun):
        return {FromSpeaker: "speaker", FromStage: "stage", FromRun: "run"}[type(value)]
    keys = value if isinstance(value, Mapping) else {}
    return next((key for key in ("speaker", "run") if key in keys), "stage")


Source = Annotated[
    Annotated[FromSpeaker, Tag("speaker")]
    | Annotated[FromStage, Tag("stage")]
    | Annotated[FromRun, Tag("run")],
    Discriminator(_kind_of_source),
]


def listed(value: object) -> list[object]:
    """Return sources as a list, in which a stage's name stands for the stage."""
    listed = value if isinstance(value, list | tuple) else [value]
    return [{"stage": one} if isinstance(one, str) else one for one in listed]


class StagePart(Section):
    """What all stages have."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)
    trains: ClassVar[bool] = False  # whether it writes a version of the policy
    reads: ClassVar[str] = "the policy"
    writes: ClassVar[str] = "episodes"
    paper: ClassVar[str] = ""  # the source of what it does

    name: str | None = Field(None, description="by which other stages refer to it; unset: `do`")

    @field_validator("name")
    @classmethod
    def _a_name_is_a_word(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z][\w-]*", name):
            raise ValueError("use letters, digits, _ and -, and begin with a letter")
        if name in (BASE, LAST, ALL):
            raise ValueError("it means something else; choose another name")
        return name

    @property
    def called(self) -> str:
        """The stage's name, or what it does."""
        return self.name or str(getattr(self, "do", ""))


class ReadingPart(StagePart):
    """A stage that reads episodes."""

    sources: tuple[Source, ...] = Field(
        alias="from",
        min_length=1,
        description="the episodes: a stage's name, {stage, rounds}, {speaker, demonstrations, "
        "levels}, {run, label, judge, environment}, or a list of these",
    )

    @field_validator("sources", mode="before")
    @classmethod
    def _names_stand_for_stages(cls, value: object) -> object:
        return listed(value)


class TrainingPart(StagePart):
    """A stage that begins with a version of the policy and writes the next one."""

    trains: ClassVar[bool] = True
    reads: ClassVar[str] = "a version, episodes"
    writes: ClassVar[str] = "a version"
    start: str | None = Field(
        None, description="the policy that it begins with: base, or a stage; unset: the last one"
    )
