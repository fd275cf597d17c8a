"""The stage that continues pre-training on texts: instructions, tools, retold episodes, files.

Source: AgentFounder (Su et al. 2025) continues pre-training on texts about tools and on retold
trajectories before it fine-tunes; how it writes its texts is not reproduced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Renderer
from palaestra.environments.registry import make
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.rows import Row, refuse_images, rows_of
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Study
from palaestra.training.stages.imitating import imitating
from palaestra.training.stages.learning_updates import Lesson, learn
from palaestra.training.stages.reading import Shown


async def study(context: RunContext, part: Study, made: Made) -> None:
    """Learn every token of the stage's texts; see `learn`.

    Raises:
        InputError: a file cannot be read, or a source has nothing to show.
    """
    renderer, limit = context.policy.renderer, context.recipe.model.context

    def prepare(shown: list[Shown]) -> Lesson:
        rows: list[Row] = []
        if part.instructions:
            text = described(context.recipe.environment.id)
            rows += text_rows(text, renderer, limit, Key("instructions", 0))
        for one in shown:
            for episode in one.episodes:
                if part.form == "chat":
                    rows += conversation_rows(episode, one.speaker)
                else:
                    rows += text_rows(retold(episode), renderer, limit, episode.key)
        for number, file in enumerate(part.files):
            rows += text_rows(_read(file), renderer, limit, Key("files", number))
        return imitating(context, part, [Example(row) for row in rows])

    await learn(context, part, made, prepare)


def described(environment: str) -> str:
    """Return an environment's instructions and what its tools do, as text."""
    built = make(environment)
    try:
        lines = [built.instructions]
        for tool in built.tools:
            lines.append(f"{tool.name}: {tool.description}\n{json.dumps(tool.parameters)}")
        return "\n\n".join(lines)
    finally:
        built.close()


def retold(episode: Episode) -> str:
    """Return what was said in an episode as text, its latest conversation if there were several."""
    if not episode.calls:
        return ""
    conversation = episode.graph.conversation(episode.calls[-1].index)
    return "\n\n".join(f"{message.role}: {message.text}" for message in conversation)


def conversation_rows(episode: Episode, speaker: str) -> list[Row]:
    """Return rows that train all tokens of an episode's conversations but the first of each.

    What was seen after the last reply is left out. Source: next-token prediction on trajectories,
    as PASTA (Boige et al. 2023) pre-trains.
    """
    found = rows_of(episode, speaker)
    for row in found:
        refuse_images(row.images, "study with form = 'chat'")
    return [_row(row.tokens, row.key) for row in found]


def text_rows(text: str, renderer: Renderer, limit: int, key: Key) -> Iterator[Row]:
    """Yield rows that train all tokens of a text but the first of each, which nothing predicts.

    Args:
        text: of any length; an empty one gives none.
        renderer: of the policy.
        limit: tokens of a row.
        key: under which the rows count.
    """
    tokens = renderer.reply(text) if text.strip() else []
    for start in range(0, max(0, len(tokens) - 1), limit - 1):  # the last token begins the next row
        part = tokens[start : start + limit]
        yield _row(part, key)


def _row(tokens: Sequence[int], key: Key) -> Row:
    n = len(tokens)
    return Row(
        key,
        list(tokens),
        mask=[False, *[True] * (n - 1)],
        logprobs=[0.0, *[math.nan] * (n - 1)],
        calls=[-1, *[0] * (n - 1)],
        versions=[0] * n,
    )


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The file '{file}' cannot be read: {error}; check the path.") from error
