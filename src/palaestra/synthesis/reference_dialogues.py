"""Dialogues: episodes in which the reference of each task is shown.

They are recorded by the code that evaluates and trains, so `palaestra import` reads them, and a
stage `imitate` trains on them. What takes time is noted as 0 seconds, so that equal dialogues are
equal to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.agents.registry import make_agent
from palaestra.core.environment import AsyncEnvironment, Environment
from palaestra.core.episode import Episode, Key
from palaestra.core.task import Task
from palaestra.environments.families.apps.composing.composition import LEVELS
from palaestra.environments.families.apps.drawing import Drawn
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.synthesised.finished_folder import Made
from palaestra.environments.families.synthesised.synthesised_tasks import (
    SOURCES,
    drawn_task,
    is_repeated,
    task_lines,
)
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.groups import Job
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Rollout
from palaestra.store.codec import JSON
from palaestra.store.exchange.chat_jsonl import conversations
from palaestra.store.exchange.episode_schema import episode_document, episode_of
from palaestra.synthesis.domain_file import Domain
from palaestra.synthesis.stage_files import Stage

PHASE = "synthesised"


class PlacedApps(Apps):
    """Apps with one task that was made by the stage `tasks`."""

    def __init__(self, id: str, made: Drawn) -> None:
        """Make the environment of a task; `id` names its domain."""
        super().__init__(next(iter(LEVELS)))
        self.spec = replace(self.spec, id=id)
        self._placed = made

    def draw(self, task: Task) -> Drawn:
        return self._placed


def dialogue_stage(domain: Domain) -> Stage:
    """Return the stage that makes dialogues: a line is an episode, as `palaestra import` reads it.

    There is none for a task that did not pass, for one that equals an earlier one, and for one
    whose reference the environment does not call solved.
    """
    wanted = {"tasks": True, "explorations": domain.explore, "told": domain.told}
    sources = [stage for stage in SOURCES if {**wanted, "twins": domain.twins}[stage]]

    async def make(made: Made, number: int) -> Sequence[JSON]:
        lines = task_lines(made)
        line = lines[number]
        if line["goals"] is None or is_repeated(lines, number):
            return []
        environment = placed(f"{PHASE}/{domain.name}", line, made["worlds"][line["world"]])
        episode = await shown(domain, environment.spec.id, number, environment)
        return [episode_document(episode)] if episode.outcome.solved else []

    def count(made: Made) -> int:
        return len(task_lines(made))

    return Stage("dialogues", ("worlds", *sources), count, make)


def row_stage(reads: Sequence[str]) -> Stage:
    """Return the stage that makes rows: chats, in the form of supervised fine-tuning data.

    Args:
        reads: stages of episodes.
    """

    async def make(made: Made, number: int) -> Sequence[JSON]:
        documents = [document for name in reads for document in made[name]]
        return list(conversations(episode_of(documents[number], f"episode {number}")))

    return Stage("rows", tuple(reads), lambda made: sum(map(len, made.values())), make)


def placed(id: str, line: Mapping[str, Any], world: dict[str, Any]) -> PlacedApps:
    """Return the environment of a task.

    Args:
        id: of the environment.
        line: the task.
        world: the line of its world.
    """
    return PlacedApps(id, drawn_task(line, world))


async def shown(domain: Domain, id: str, number: int, environment: Environment) -> Episode:
    """Return the episode in which the domain's agent does what a reference does, without times.

    Args:
        domain: names the agent.
        id: of the environment.
        number: of the task.
        environment: with that task and no other; it is closed at the end.
    """

    async def make(_: str) -> AsyncEnvironment:
        return LocalEnvironment(environment)

    agent = make_agent(domain.agent)
    rollout = Rollout(agent, make, {"agent": ExpertModel(agent)}, seed=domain.seed)
    phase = id.partition("/")[0]
    job = Job(Key(phase, number), Task(f"{phase}/{number}", id, seed=3 * number))
    [episode] = await rollout.run([job])
    return timeless(episode)


def timeless(episode: Episode) -> Episode:
    """Return an episode without the times that its calls and steps took."""
    return replace(
        episode,
        calls=tuple(replace(call, seconds=0.0) for call in episode.calls),
        steps=tuple(replace(step, seconds=0.0) for step in episode.steps),
        usage=replace(episode.usage, seconds=0.0),
    )
