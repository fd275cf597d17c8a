"""General text of a recipe: which files, what of them is learned, and what only tested."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from palaestra.core.errors import InputError, RecipeError
from palaestra.learning.data.examples.text_examples import HELD_OUT, is_held_out, paragraphs
from palaestra.training.recipe import Recipe
from palaestra.training.stage_program import program, steps_of
from palaestra.training.stage_sections import Imitate


def read_text(file: str) -> str:
    """Return the text of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The file '{file}' cannot be read: {error}; check the path.") from error


def general_files(recipe: Recipe) -> list[str]:
    """Return the files of general text that a recipe names, each once."""
    parts = [step.part for step in steps_of(program(recipe))]
    mixed_in = [
        file
        for part in parts
        if isinstance(part, Imitate) and part.general is not None
        for file in part.general.files
    ]
    return list(dict.fromkeys([*recipe.evaluation.general, *mixed_in]))


def learned_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of general text that a stage may learn."""
    return [part for part in paragraphs(text) if not is_held_out(part)]


def held_out_paragraphs(files: Sequence[str]) -> list[str]:
    """Return the paragraphs of files that are only tested, each once."""
    every = [part for file in files for part in paragraphs(read_text(file)) if is_held_out(part)]
    return list(dict.fromkeys(every))


def check_general(recipe: Recipe) -> None:
    """Raise InputError unless general text can be read, and has what to learn and to test."""
    files = general_files(recipe)
    for file in files:
        if not learned_paragraphs(read_text(file)):
            raise RecipeError(
                f"The general text '{file}' has no paragraph to learn; name another file."
            )
    if files and not held_out_paragraphs(files):
        raise RecipeError(
            f"None of the paragraphs of {' and '.join(files)} is held out (about one in "
            f"{HELD_OUT} is), so forgetting cannot be measured; name more general text."
        )


def digests(files: Sequence[str]) -> dict[str, str]:
    """Return a hash of the text of each file."""
    return {file: hashlib.sha256(read_text(file).encode()).hexdigest() for file in files}
