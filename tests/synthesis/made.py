"""Small domains, and models with scripts for them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from palaestra.core.message import Message
from palaestra.environments.families.apps.generated import blueprint_text
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.synthesis.committee import REVIEWER, WRITER
from palaestra.synthesis.data_synthesis import Yield, synthesise
from palaestra.synthesis.domain_file import Domain

ABOUT = "A shelter keeps cats, and the museum next door shows its exhibits."
COUNTY = Domain(name="county", about=ABOUT, seed=7, blueprints=4, worlds=2, tasks=4)
FILES = ("blueprints", "worlds", "tasks", "dialogues", "rows")


def made(folder: Path, domain: Domain = COUNTY, model: ScriptedModel | None = None) -> list[Yield]:
    return asyncio.run(synthesise(domain, folder, lambda said: None, model))


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files but the lock's."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != ".lock"}


def lines(folder: Path, stage: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / f"{stage}.jsonl").read_text().splitlines()]


def greeted(plain: str) -> str:
    return json.dumps({"instruction": f"Hello! {plain}"})


def drawn_blueprint(question: str) -> str:
    number = re.search(r"service (\d+) of", question)
    assert number is not None
    return f"Here it is:\n```toml\n{blueprint_text(int(number[1]))}```"


def county_reply(
    messages: Sequence[Message],
    write: Callable[[str], str] = greeted,
    review: Callable[[str], str] = lambda question: '{"accept": true}',
    engineer: Callable[[str], str] = drawn_blueprint,
) -> str:
    """The reply of a writer, a reviewer or an engineer; a writer reads plain words, or feedback."""
    question = messages[-1].text
    if messages[0].text == REVIEWER:
        return review(question)
    if messages[0].text != WRITER:
        return engineer(question)
    found = re.search(r"in plain terms: (.*)", question)
    assert found is not None
    return write(question if "refused" in question else found[1])


def county_model(**replies: Callable[[str], str]) -> ScriptedModel:
    """A model that writes good blueprints and words, unless other replies are given."""
    return ScriptedModel(lambda messages: county_reply(messages, **replies), name="writer")
