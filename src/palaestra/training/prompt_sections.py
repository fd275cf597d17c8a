"""Keys of stages whose prompts hold more than the environment shows: hints, and commands."""

from __future__ import annotations

from pydantic import Field, field_validator

from palaestra.training.recipe_sections import Section


class Commanded(Section):
    """A stage whose prompts may state the return to earn."""

    commands: tuple[str, ...] = Field(
        (),
        description="stages whose best episodes say what return, in how many turns, the prompts "
        "ask for (upside-down RL); unset: prompts state no command",
    )

    @field_validator("commands", mode="before")
    @classmethod
    def _commands_of_one_stage_need_no_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


class Hinted(Section):
    """A stage whose prompts may hold hints."""

    hints: tuple[str, ...] = Field(
        (),
        description="stages that tried the same tasks (`like`): where an attempt failed, the "
        "prompt says what one that succeeded did; unset: no hints",
    )

    @field_validator("hints", mode="before")
    @classmethod
    def _hints_of_one_stage_need_no_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value
