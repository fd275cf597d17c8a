"""The stage that continues pre-training on texts: instructions, tools, retold episodes, files.

Source: AgentFounder (Su et al. 2025) continues pre-training on texts about tools and on retold
trajectories before it fine-tunes; how it writes its texts is not reproduced.
"""

from __future__ import annotations

import json

from palaestra.core.episode import Episode, Key
from palaestra.environments.registry import make
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.text_examples import text_row, text_rows
from palaestra.learning.data.rows import Row, refuse_images, rows_of
from palaestra.training.general_text import general_files, learned_paragraphs, read_text
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Study
from palaestra.training.stages.imitating import imitating
from palaestra.training.stages.learning_updates import Lesson, learn
from palaestra.training.stages.reading import Shown


async def study(context: RunContext, part: Study, made: Made) -> None:
    """Learn every token of the stage's texts; see `learn`.

    Where the loss on general text is measured, paragraphs that are held out there are left out of
    files here.

    Raises:
        InputError: a file cannot be read, or a source has nothing to show.
    """
    renderer, limit = context.policy.renderer, context.recipe.model.context
    tested = bool(general_files(context.whole))

    def read(file: str) -> str:
        text = read_text(file)
        return "\n\n".join(learned_paragraphs(text)) if tested else text

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
            rows += text_rows(read(file), renderer, limit, Key("files", number))
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
    return [text_row(row.tokens, row.key) for row in found]
