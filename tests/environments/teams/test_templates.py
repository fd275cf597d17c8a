"""Templates: short, with a source, and each does what its paper is about, by numbers."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.players import PlayersAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.teams.team_file import TEMPLATES, load, templates
from palaestra.models.scripted.competence import competence_of
from palaestra.models.scripted.reader import ReaderModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.test_game import Kept, Killed, same

WHERE = {
    "checkers": "cases/care",
    "crew": "stage/scene",
    "extraction": "cases/record",
    "limitations": "cases/paper",
    "partners": "cases/partner",
    "programmers": "programs/functions",
    "software": "programs/functions",
    "triage": "cases/triage",
}
"""The environment that a template is made for; the others fit any."""


class Slow(ReaderModel):
    """A reader that takes a number of turns of the event loop to think."""

    delays: Callable[[], int]

    def for_environment(self, environment: AsyncEnvironment) -> Slow:
        bound = Slow(self.agent, competence=self.competence, environment=environment)
        bound.delays = self.delays
        return bound

    async def generate(self, prompt: Prompt) -> Generation:
        for _ in range(self.delays()):
            await asyncio.sleep(0)
        return await super().generate(prompt)


def slow(options: str, delays: Callable[[], int]) -> Slow:
    model = Slow(PlayersAgent(), competence=competence_of(options))
    model.delays = delays
    return model


def play(
    team: str,
    where: str,
    models: Mapping[str, str | Model],
    index: int = 0,
    *,
    journal: Kept | None = None,
    past: Sequence[Event] = (),
) -> Episode:
    """Return an episode of a team, with the agents that its file names, and models by role."""
    id = f"{where}?team={team}"
    members = load(team).players
    agent = PlayersAgent(**{member: quote(one.agent) for member, one in members.items()})
    world = LocalEnvironment(registry.make(id))
    loaded = {
        role: ReaderModel(agent, competence=competence_of(one)) if isinstance(one, str) else one
        for role, one in models.items()
    }
    bound = {role: model.for_environment(world) for role, model in loaded.items()}
    task = registry.tasks(id).task(Split.TEST, index)
    session = Session(
        Key("test", 0, 0), task, world, agent, bound, budget=Budget(turns=60), journal=journal,
        past=past,
    )  # fmt: skip
    return asyncio.run(session.run())


def said(episode: Episode, member: str) -> list[str]:
    """Return the replies of a member."""
    return [step.action.text for step in episode.steps if step.before.turn == member]


def seen(episode: Episode, member: str) -> str:
    """Return all prompts of a member."""
    calls = [call for call in episode.calls if call.role == member]
    return "\n".join(message.text for message in calls[-1].messages)


@pytest.mark.parametrize("name", templates())
def test_a_template_is_short_and_names_its_source(name: str) -> None:
    text = (TEMPLATES / f"{name}.toml").read_text()
    comment = "".join(line for line in text.splitlines() if line.startswith("#"))
    assert len(text.splitlines()) <= 40
    assert re.search(r"[A-Z]\w+ (et al\. |and [A-Z]\w+ )?\d{4}", comment)
    page = (Path(__file__).parents[3] / "docs" / "teams.md").read_text()
    assert f"| `{name}` |" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WHERE))
def test_a_template_keeps_the_contract_where_it_belongs(name: str) -> None:
    broken = [f for f in check_environment(f"{WHERE[name]}?team={name}") if not f.holds]
    assert broken == []


@pytest.mark.parametrize("name", sorted(WHERE))
def test_members_who_are_always_right_solve_by_it(name: str) -> None:
    parts = {
        "checkers": {"dosage": "dose", "checklist": "visit"},
        "crew": {"writer": "marks", "left": "shots", "right": "shots", "actor": "marks"},
        "programmers": {"programmer": "def", "tester": "assert"},
        "software": {"developer": "def", "tester": "assert"},
        "triage": {"practitioner": "department"}
        | dict.fromkeys(
            ("cardiology", "neurology", "gastroenterology", "pulmonology"), "diagnosis"
        ),
    }
    models = {"agent": "reader"}
    models |= {member: f"reader?part={part}" for member, part in parts.get(name, {}).items()}
    for index in range(3):
        assert play(name, WHERE[name], models, index).outcome.solved


def test_the_tester_of_programmers_is_blind_and_the_executor_runs_what_both_wrote() -> None:
    models = {
        "programmer": "reader?part=def&right=0",
        "tester": "reader?part=assert",
    }
    episode = play("programmers", "programs/functions", models)
    assert "programmer proposes" not in seen(episode, "tester")
    assert "tester: " not in seen(episode, "programmer")
    programs, verdicts = said(episode, "programmer"), said(episode, "executor")
    assert len(programs) == len(verdicts) == 5  # all wrong: to the end of the rounds
    assert all(verdict.startswith("wrong: the tests ended with") for verdict in verdicts)
    assert episode.steps[-1].transition.terminated and not episode.outcome.solved


@pytest.mark.parametrize(("share", "verdict"), [(1, "accept"), (0, "wrong: the tests")])
def test_a_tester_who_sees_the_program_may_share_its_mistake(
    tmp_path: Path, share: int, verdict: str
) -> None:
    text = (TEMPLATES / "programmers.toml").read_text()
    head, tests, program, rest = text.split("[[stage]]\n", 3)
    file = tmp_path / "seen.toml"
    seeing = head.replace("[edges]", '[edges]\ntester = ["programmer"]')
    file.write_text(
        "[[stage]]\n".join([seeing, program, tests, rest.replace("back = 1", "back = 2")])
    )
    models = {
        "programmer": "reader?part=def&right=0",
        "tester": f"reader?part=assert&share={share}",
    }
    verdicts = said(play(str(file), "programs/functions", models), "executor")
    assert all(one.startswith(verdict) for one in verdicts)
    assert len(verdicts) == (1 if share else 5)


def test_a_supervisor_halts_a_team_that_repeats_itself() -> None:
    program = "def nothing():\n    return 0"
    models = {
        "agent": "reader",
        "developer": ScriptedModel(lambda messages: program),
        "tester": "reader?part=assert",
    }
    episode = play("software", "programs/functions", models)
    assert said(episode, "supervisor") == ["halt"]
    assert said(episode, "developer") == [program, program]


def test_what_a_checker_says_overrides_a_part_of_the_reply() -> None:
    models = {"primary": "reader?right=0&found=1"} | {
        member: f"reader?part={part}"
        for member, part in (
            ("dosage", "dose"),
            ("interactions", "together"),
            ("emergencies", "urgency"),
            ("checklist", "visit"),
        )
    }
    episode = play("checkers", "cases/care", models)
    assert episode.steps[-1].transition.info["right"] == ["dose", "together", "urgency", "visit"]
    checkers = [step for step in episode.steps if step.before.together]
    assert len(checkers) == 3  # and the last one: the four reply at the same time


def test_the_practitioner_sends_the_patient_where_the_records_say() -> None:
    specialists = ("cardiology", "neurology", "gastroenterology", "pulmonology")
    models = {
        "practitioner": "reader?part=department&right=0&found=1",
        **dict.fromkeys(specialists, "reader?part=diagnosis&right=0&with.department=1"),
        "registrar": "reader?right=0&found=1",
    }
    for index in range(4):
        episode = play("triage", "cases/triage", models, index)
        assert episode.outcome.solved
        asked = {call.role for call in episode.calls} & set(specialists)
        department = said(episode, "practitioner")[0].removeprefix("department: ")
        assert asked == {department}
        assert said(episode, "records")[0].startswith(f"department: {department}; diagnosis: ")


CHECKERS = {"dosage": "dose", "interactions": "together", "emergencies": "urgency"}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_members_that_are_slow_change_nothing(seed: int) -> None:
    rng = random.Random(seed)

    def models(delays: Callable[[], int]) -> dict[str, str | Model]:
        checkers = {m: slow(f"reader?recall=0.5&part={p}", delays) for m, p in CHECKERS.items()}
        return {"agent": slow("reader?right=0.5&found=1", delays), **checkers}

    delayed = play("checkers", "cases/care", models(lambda: rng.randrange(6)))
    assert same(delayed) == same(play("checkers", "cases/care", models(lambda: 0)))


@pytest.mark.parametrize("team", ["programmers", "triage"])
def test_a_team_with_tools_goes_on_where_it_was_killed(team: str) -> None:
    models = {
        "agent": "reader?right=0.5&found=0.5",
        "programmer": "reader?part=def&right=0.2",
        "tester": "reader?part=assert",
        "practitioner": "reader?part=department&right=0.5",
    }
    whole = play(team, WHERE[team], models, 2, journal=(kept := Kept()))
    for most in range(1, len(kept.events)):
        journal = Kept(most)
        with pytest.raises(Killed):
            play(team, WHERE[team], models, 2, journal=journal)
        resumed = play(team, WHERE[team], models, 2, journal=Kept(), past=journal.events)
        assert same(resumed) == same(whole)


def test_a_member_is_replaced_by_a_tool_or_a_team_and_the_others_notice_nothing(
    tmp_path: Path,
) -> None:
    """Blocks have one interface: text in, text out (Flows, Josifoski et al. 2023)."""
    base = (
        '[members.author]\n{}\nrights = ["send"]\n[[stage]]\ndo = "propose"\nwho = ["author"]\n'
        '[[stage]]\ndo = "talk"\nwho = ["critic"]\n[[stage]]\ndo = "act"\nwho = ["author"]\n'
    )
    knows = tmp_path / "knows.toml"
    knows.write_text('[[entry]]\nwhen = ["which thing"]\nsay = "accept"\n')
    critics = {
        "model": "[members.critic]",
        "tool": f'[members.critic]\nagent = "lookup?file={knows}"',
        "team": '[members.critic]\nteam = "majority"',
    }
    author = ScriptedModel(lambda messages: "red big")
    prompts, records = set(), {}
    for kind, critic in critics.items():
        file = tmp_path / f"{kind}.toml"
        file.write_text(base.format(critic))
        models = {"agent": ScriptedModel(lambda messages: "accept"), "author": author}
        episode = play(str(file), "questions/things-2", models)
        prompts.add(seen(episode, "author"))
        records[kind] = {step.before.turn for step in episode.steps}
    assert len(prompts) == 1 and "critic: accept" in prompts.pop()
    assert records["tool"] == records["model"] == {"author", "critic"}
    assert "critic.first" in records["team"]


PROCEDURE = """
title = "find out, then name"
start = "colour"
[states.colour]
prompt = "State colour."
actions = ["colour"]
next = [{ when = "(?m)^Your team did: colour", to = "size" }]
[states.size]
prompt = "State size."
actions = ["size"]
next = [{ when = "(?m)^Your team did: size", to = "name" }]
[states.name]
prompt = "State name."
"""


@pytest.mark.parametrize("clerk", ["procedure?file={}", "summary"])
def test_two_agents_with_states_memory_and_a_tool_are_one_configuration(
    tmp_path: Path, clerk: str
) -> None:
    """Agents (Zhou et al. 2023): a module is swapped by configuration, and prompts show states."""
    procedure, knows, file = (
        tmp_path / name for name in ("states.toml", "knows.toml", "team.toml")
    )
    procedure.write_text(PROCEDURE)
    knows.write_text('[[entry]]\nwhen = ["which thing"]\nsay = "ask before you name it"\n')
    file.write_text(
        f'[members.clerk]\nagent = "{clerk.format(procedure)}"\n'
        f'[members.records]\nagent = "lookup?file={knows}"\nrights = ["send"]\n'
        '[[stage]]\ndo = "talk"\nwho = ["records"]\n[[stage]]\ndo = "act"\nwho = ["clerk"]\n'
    )
    plan = iter(["colour", "size", "red big"])
    models = {"agent": ScriptedModel(lambda messages: next(plan))}
    episode = play(str(file), "questions/things-2", models)
    assert said(episode, "clerk") == ["colour", "size", "red big"]
    assert set(said(episode, "records")) == {"ask before you name it"}
    assert "records: ask before you name it" in seen(episode, "clerk")
    shown = [call.messages[-1].text for call in episode.calls if call.role == "clerk"]
    states = [re.findall(r"State (\w+)\.", text) for text in shown]
    procedural = clerk.startswith("procedure")
    assert states == ([["colour"], ["size"], ["name"]] if procedural else [[], [], []])


def test_a_knowledge_file_that_is_not_there_is_named_before_the_start(tmp_path: Path) -> None:
    file, text = tmp_path / "triage.toml", (TEMPLATES / "triage.toml").read_text()
    file.write_text(text.replace("file=diseases", "file=desease"))
    with pytest.raises(InputError, match=r"no knowledge file 'desease'\. Did you mean 'diseases'"):
        play(str(file), "cases/triage", {"agent": "reader"})
