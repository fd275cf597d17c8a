"""The table `general` of a stage that imitates: general text, mixed into what it learns."""

from __future__ import annotations

from pydantic import Field

from palaestra.training.recipe_sections import Section


class General(Section):
    """General text in an exact ratio to the replies that a stage imitates (AgentTuning)."""

    files: tuple[str, ...] = Field(
        min_length=1,
        description="text files; a tenth of their paragraphs is never learned, and their loss "
        "measured after each stage",
    )
    share: float = Field(
        0.2, gt=0, lt=1, description="of general tokens among all that each step trains"
    )
