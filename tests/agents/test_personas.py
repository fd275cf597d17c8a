"""One model plays personas: those that it names for the task know more than fixed ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest

from palaestra.agents.personas import PersonasAgent
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Message
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.evaluation.statistics.intervals import wilson
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

FIELDS = ("law", "music", "history", "science", "medicine")
LETTERS = "abcd"


class Fields(Environment, typical_turns=1):
    """A question of one of five fields; those who know the field know the letter."""

    instructions = "Answer with a letter from a to d."

    def reset(self, task: Task) -> Observation:
        self.number = task.seed
        return Observation(f"A {FIELDS[self.number % len(FIELDS)]} question: {self.number}")

    def step(self, action: Action) -> Transition:
        solved = action.text == known_to_the_field(self.number)
        return Transition(Observation("Over."), float(solved), terminated=True, success=solved)


def known_to_the_field(number: int) -> str:
    return LETTERS[number // len(FIELDS) % len(LETTERS)]


def persona_dependent(messages: Sequence[Message]) -> str:
    """Answer as the persons know who take part: those of the instructions, or else chosen ones."""
    [asked] = re.findall(r"A (\w+) question: (\d+)", messages[-1].text)
    [told] = re.findall(r"^Participants: (.+)$", messages[0].text, re.MULTILINE)
    persons = f"Expert in {asked[0]}, Writer" if told.startswith("at most") else told
    answer = known_to_the_field(int(asked[1])) if asked[0] in persons else LETTERS[0]
    return f"Participants: {persons}\nWriter: It is {answer}.\nAction: {answer}"


def episodes(agent: PersonasAgent, count: int) -> list[Episode]:
    models = {"agent": ScriptedModel(persona_dependent)}

    def episode(number: int) -> Episode:
        task = Task(f"test/{number}", "fields", number)
        environment = LocalEnvironment(Fields())
        return asyncio.run(Session(Key("test", number), task, environment, agent, models).run())

    return [episode(number) for number in range(count)]


@pytest.mark.slow
def test_chosen_personas_beat_fixed_ones_by_what_the_fixed_ones_do_not_know() -> None:
    chosen = episodes(PersonasAgent(), 400)
    fixed = episodes(PersonasAgent(participants="Expert in law, Expert in music"), 400)
    assert all(len(episode.calls) == 1 for episode in (*chosen, *fixed))  # equal calls
    assert all(episode.outcome.solved for episode in chosen)
    known = 2 / len(FIELDS)
    reached = wilson(sum(episode.outcome.solved for episode in fixed), len(fixed))
    assert reached.low <= known + (1 - known) / len(LETTERS) <= reached.high
    assert "Participants: Expert in science, Writer" in chosen[3].calls[0].reply.text


def test_fixed_participants_stand_in_the_instructions() -> None:
    [episode] = episodes(PersonasAgent(participants="Nurse, Climber"), 1)
    assert "\nParticipants: Nurse, Climber\n" in episode.calls[0].messages[0].text


@pytest.mark.parametrize("persons", [2, 4])
def test_the_number_of_chosen_personas_is_bounded_in_the_instructions(persons: int) -> None:
    [episode] = episodes(PersonasAgent(persons=persons), 1)
    assert f"at most {persons}, those whose" in episode.calls[0].messages[0].text
