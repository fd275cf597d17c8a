"""Orchestrators: ledgers, who is given the work, stalls, and workers that fail, come and go."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.code.reply_format import KNOWN
from palaestra.agents.players import PlayersAgent
from palaestra.cli.main import main
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import AgentFault, InputError
from palaestra.core.message import assistant, user
from palaestra.core.model import Model
from palaestra.core.rare_capabilities import acting_in
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.core.team_words import ASKED, PASS, PLAN_ENTRIES, entries
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.families.questions.environment import Questions
from palaestra.environments.teams.ledgers import TurnLedger, parse_turn, plan_problem
from palaestra.environments.teams.orchestrator import Orchestrator
from palaestra.environments.teams.protocol import protocol_of
from palaestra.environments.teams.team_environment import InTeam
from palaestra.environments.teams.team_file import Team, load
from palaestra.evaluation.statistics.conversation import conversation
from palaestra.models.scripted.reader import Competence, ReaderModel
from palaestra.models.scripted.reading_ledgers import read, write_plan, write_turn
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

TASK = TaskSet("questions/things-2").task(Split.TRAIN, 0)
PLAN = "facts: a\nguesses: b\nplan: c"


def ledger(next: str, *, stalled: str = "no", done: str = "no") -> str:
    return f"done: {done}\nstalled: {stalled}\nnext: {next}"


def team(orchestrator: dict[str, object] | None = None, **members: dict[str, object]) -> Team:
    workers: dict[str, dict[str, object]] = {
        "weigher": {"skills": "weigh things"},
        "painter": {"skills": "paint things, mix colours"},
    }
    return Team.model_validate(
        {
            "members": {"lead": {}, **(members or workers)},
            "orchestrator": {"member": "lead", **(orchestrator or {})},
        }
    )


def begun(found: Team) -> Orchestrator:
    """Return an orchestrator that has made its plan."""
    protocol = Orchestrator(found, 0)
    protocol.begin("start")
    give(protocol, PLAN)
    return protocol


def give(protocol: Orchestrator, *replies: str) -> str | None:
    """Give replies to a protocol in its order; return the decision."""
    decision = None
    for text in replies:
        assert decision is None
        assert protocol.refusal(text) is None
        decision = protocol.take(protocol.next()[0], text)
    return decision


# ── ledgers ──────────────────────────────────────────────────────────────────


def test_ledgers_are_read_with_marks_and_over_several_lines() -> None:
    text = "**Facts:** one\ntwo\n\n2. guesses: three\n- Plan: four"
    assert entries(text, PLAN_ENTRIES) == {"facts": "one\ntwo", "guesses": "three", "plan": "four"}
    assert plan_problem(text) is None
    assert parse_turn("- **Done:** No, not yet\n- Stalled: yes.\n- Next: bob: paint\nit") == (
        TurnLedger(done=False, stalled=True, next="bob: paint\nit")
    )
    assert parse_turn("done: yes\nstalled: no") == TurnLedger(True, False, "")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("stalled: no\nnext: bob", "Write done: yes, or done: no, on a line of its own."),
        ("done: no\nstalled: maybe\nnext: b", "Write stalled: yes, or stalled: no, on a line"),
        ("done: no\nstalled: no\nnext:", "Write next: on a line of its own"),
    ],
)
def test_a_ledger_that_cannot_be_read_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    assert str(parse_turn(text)).startswith(sentence)
    protocol = begun(team())
    assert str(protocol.refusal(text)).startswith(sentence)


def test_a_plan_without_its_parts_is_refused_in_a_sentence() -> None:
    assert Orchestrator(team(), 0).refusal("facts: a\nplan:") == (
        "The ledger lacks guesses: and plan:; write facts:, guesses: and plan:, each on a line of "
        "its own."
    )


# ── who is given the work ────────────────────────────────────────────────────


def test_work_is_given_by_name_and_done_by_an_action() -> None:
    protocol = begun(team())
    assert protocol.next() == ["lead"]
    assert protocol.asked() == (
        f"Workers:\n- weigher: weigh things\n- painter: paint things, mix colours\n"
        f"{ASKED['ledger']}"
    )
    give(protocol, ledger("**Painter**: make it red"))
    assert protocol.next() == ["painter"]
    assert protocol.asked() == f"Your work: make it red\n{ASKED['work']}"
    assert give(protocol, "paint red") == "paint red"
    protocol.begin_turn("It is red.")
    assert protocol.next() == ["lead"] and protocol.work.phase == "ledger"


def test_work_is_given_to_the_best_match_of_skills_and_the_orchestrator_reads_whose() -> None:
    protocol = begun(team())
    give(protocol, ledger("mix two colours"))
    assert protocol.next() == ["painter"]
    give(protocol, "red")
    protocol.begin_turn("It is red.")
    assert protocol.asked().startswith("painter took the work.\nWorkers:\n")
    give(protocol, ledger("painter: more"), "redder")
    protocol.begin_turn("It is redder.")
    assert protocol.asked().startswith("Workers:\n")
    # both match "things" equally in their counts, and the shorter text scores higher
    protocol = begun(team())
    give(protocol, ledger("do things"))
    assert protocol.next() == ["weigher"]
    protocol = begun(team())
    give(protocol, ledger("let the painter do it"))
    assert protocol.next() == ["painter"]
    protocol = begun(team())
    assert protocol.refusal(ledger("sing")) == (
        "No worker's skills match 'sing'; name one of weigher, painter."
    )


def test_a_worker_reports_and_after_some_rounds_the_orchestrator_acts_itself() -> None:
    protocol = begun(team({"rounds": 2}))
    protocol.said()
    give(protocol, ledger("weigher: look"), "Report: it is heavy")
    assert protocol.said() == [("weigher", "weigher: it is heavy")]
    assert protocol.next() == ["lead"] and protocol.work.phase == "ledger"
    give(protocol, ledger("painter: look"), "report: it is red")
    assert protocol.next() == ["lead"] and protocol.asked() == ASKED["act"]
    assert give(protocol, "answer") == "answer"


def test_rights_say_whether_a_worker_acts_reports_or_ends_the_talk() -> None:
    members = {
        "doer": {"rights": ["act"]},
        "critic": {"rights": ["send"]},
        "boss": {"rights": ["act", "send", "halt"]},
    }
    protocol = begun(team(None, **members))
    give(protocol, ledger("critic: judge"))
    assert protocol.asked().endswith(ASKED["report"])
    give(protocol, "left is wrong")
    assert protocol.said()[-1] == ("critic", "critic: left is wrong")
    give(protocol, ledger("doer: go"))
    assert protocol.asked().endswith(ASKED["act"])
    assert give(protocol, "report: left") == "report: left"
    protocol.begin_turn("moved")
    give(protocol, ledger("boss: see"), "halt")
    assert protocol.next() == ["lead"] and protocol.asked() == ASKED["act"]


def test_once_it_is_done_the_orchestrator_gives_the_last_action_or_none() -> None:
    for reply in ("answer", PASS):
        protocol = begun(team())
        give(protocol, "done: yes\nstalled: no")
        assert protocol.asked() == ASKED["act"]
        assert give(protocol, reply) == reply
    protocol = begun(team())
    assert give(protocol, "done: yes\nstalled: no", "(Pass).") == PASS
    assert give(begun(team()), PASS) == PASS  # without ledgers nobody decides


# ── stalls ───────────────────────────────────────────────────────────────────


def test_stalls_that_the_ledger_states_bring_a_new_plan_and_progress_takes_one_back() -> None:
    protocol = begun(team())
    phases = []
    for turn, stalled in enumerate(["yes", "no", "yes", "yes", "yes"]):
        give(protocol, ledger("weigher: go", stalled=stalled))
        phases.append(protocol.work.phase)
        if phases[-1] == "plan":
            assert protocol.asked().startswith("The work has stalled; make a new plan.\n")
            give(protocol, PLAN, ledger("weigher: go", stalled="yes"))  # not yet tried
            assert protocol.work.stalls == 0
        give(protocol, f"act {turn}")
        protocol.begin_turn(f"see {turn}")
    # 1, 0, 1, 2: the new plan; then 1
    assert phases == ["work", "work", "work", "plan", "work"] and protocol.work.stalls == 1


@pytest.mark.parametrize("same", ["observation", "action"])
def test_what_repeats_stalls_by_itself_and_brings_a_new_plan_in_two_turns(same: str) -> None:
    protocol = begun(team())
    for turn in range(4):
        give(protocol, ledger("weigher: go"))
        if protocol.work.phase == "plan":
            break
        give(protocol, "again" if same == "action" else f"act {turn}")
        protocol.begin_turn("start" if same == "observation" else f"see {turn}")
    # the first observation is known, so it repeats in the first turn, and an action in the second
    assert turn == (2 if same == "observation" else 3)


def test_what_changes_never_brings_a_new_plan() -> None:
    protocol = begun(team({"stalls": 1}))
    for turn in range(20):
        give(protocol, ledger("weigher: go"))
        assert protocol.work.phase == "work"
        give(protocol, f"act {turn}")
        protocol.begin_turn(f"see {turn}")


# ── workers that fail, come and go ───────────────────────────────────────────


def test_a_worker_that_passes_is_out_and_its_work_is_given_to_the_next_best() -> None:
    members = {"a": {"skills": "lock"}, "b": {"skills": "paint"}, "c": {"skills": "lock, open"}}
    protocol = begun(team(None, **members))
    give(protocol, ledger("lock it"))
    assert protocol.next() == ["a"]
    give(protocol, PASS)
    assert protocol.next() == ["c"] and protocol.work.task == "lock it"
    give(protocol, PASS)
    assert protocol.asked() == (
        "a took the work.\na is out of the team's work.\nc took the work.\n"
        f"c is out of the team's work.\nWorkers:\n- b: paint\n{ASKED['ledger']}"
    )
    assert protocol.refusal(ledger("a: lock it")) == "a cannot be given work; name one of b."
    give(protocol, ledger("b: lock it"), PASS)
    assert protocol.next() == ["lead"]
    assert protocol.asked() == f"b is out of the team's work.\n{ASKED['act']}"


def test_members_are_there_in_their_turns_and_those_in_reserve_once_they_are_named() -> None:
    members = {
        "early": {"until_turn": 1},
        "late": {"from_turn": 2, "skills": "paint"},
        "spare": {"reserve": True, "skills": "paint, paint"},
    }
    found = Team.model_validate(
        {
            "members": {"lead": {"rights": ["act", "send", "spawn"]}, **members},
            "orchestrator": {"member": "lead"},
        }
    )
    protocol = begun(found)
    assert "- early\n- spare: paint, paint\n" in protocol.asked()
    assert protocol.refusal(ledger("paint it")) is not None  # nobody who is there paints
    give(protocol, ledger("early: go"), "go")
    protocol.begin_turn("gone")
    assert "- late: paint\n- spare: paint, paint\n" in protocol.asked()
    assert protocol.refusal(ledger("early: go")) == "early cannot be given work; name one of " + (
        "late, spare."
    )
    give(protocol, ledger("paint it"))
    assert protocol.next() == ["late"]
    give(protocol, "painted")
    protocol.begin_turn("red")
    give(protocol, ledger("spare: paint it"), "painted more")
    protocol.begin_turn("redder")
    give(protocol, ledger("paint it"))  # found by its skills from now on
    assert protocol.next() == ["spare"]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.3]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(st.sampled_from([("act",), ("send",), ("act", "send", "halt")]), min_size=1),
)
def test_every_turn_ends_within_the_stated_replies_and_survives_being_saved(
    seed: int, passing: float, stalls: int, rounds: int, rights: list[tuple[str, ...]]
) -> None:
    members = {
        f"w{k}": {"rights": one, "skills": "try", "from_turn": 1 + k % 3}
        for k, one in enumerate(rights)
    }
    found = team({"stalls": stalls, "rounds": rounds}, **members)
    protocol, rng = Orchestrator(found, 0), random.Random(seed)
    for turn in range(6):
        for _ in range(protocol.most_replies()):
            again = Orchestrator(found, 0)
            again.restore(json.loads(json.dumps(protocol.saved())))
            assert (again.next(), again.asked()) == (protocol.next(), protocol.asked())
            assert again.key() == protocol.key()
            protocol = again
            working = protocol.work.phase == "work"
            reply = protocol.sample(rng, lambda: rng.choice(["report: x", "halt", "left"]))
            reply = PASS if working and rng.random() < passing else reply
            assert protocol.refusal(reply) is None
            if protocol.take(protocol.next()[0], reply) is not None:
                break
        else:
            raise AssertionError(f"turn {turn} has more replies")
        protocol.begin_turn("same")


# ── in an environment ────────────────────────────────────────────────────────


def run(world: InTeam, models: dict[str, Model], agent: Agent | None = None) -> Episode:
    local = LocalEnvironment(world)
    bound = {role: model.for_environment(local) for role, model in models.items()}
    who = agent or PlayersAgent()
    session = Session(Key("test", 0), TASK, local, who, bound, budget=Budget(turns=60))
    return asyncio.run(session.run())


class Crashing(Agent):
    """Crashes as soon as it is given work."""

    name = "crashing"

    async def run(self, session: Session) -> None:
        raise AgentFault("crash", "planted")


def test_a_dead_worker_is_replaced_and_the_team_succeeds() -> None:
    world = InTeam(Questions("things-2"), "orchestrator")
    agent = PlayersAgent(solver=f"{__name__}:Crashing")
    reader = ReaderModel(PlayersAgent())
    lead = ScriptedModel([PLAN, ledger("solver: answer"), ledger("explorer: answer")])
    episode = run(world, {"agent": reader, "lead": lead}, agent)
    assert episode.outcome.solved
    assert episode.players["solver"].forfeited and not episode.players["explorer"].forfeited
    texts = [message.text for call in episode.calls for message in call.messages]
    assert any("solver is out of the team's work." in text for text in texts)


def test_an_orchestrated_team_is_saved_in_the_middle_of_its_turn() -> None:
    world = InTeam(Questions("things-2"), "orchestrator")
    world.reset(TASK)
    for reply in (PLAN, ledger("explorer: ask")):
        assert world.step(Action(reply)).valid
    other = InTeam(Questions("things-2"), "orchestrator")
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key() and acting_in(other) == ("explorer",)
    assert world.step(Action("colour")) == other.step(Action("colour"))
    assert not world.step(Action("next: nobody")).valid


def test_a_team_of_readers_works_through_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        "eval --env questions/things-2 --team orchestrator --model reader -n 4 --json "
        f"--run {tmp_path}/run".split()
    )
    assert code == 0
    assert json.loads(capsys.readouterr().out)["success"] == 1.0


MIXED = """
[members.lead]
rights = ["act", "send", "spawn"]
[members.boss]
rights = ["halt"]
[members.group]
team = "majority"
skills = "guess"
[members.crew]
team = "orchestrator"
reserve = true
[supervisor]
member = "boss"
[orchestrator]
member = "lead"
stalls = 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["questions/things-2", "babyai/GoToLocalS5N2"])
def test_orchestrators_over_teams_and_under_a_supervisor_keep_the_contract(
    environment: str, tmp_path: Path
) -> None:
    file = tmp_path / "mixed.toml"
    file.write_text(MIXED)
    assert [f for f in check_environment(f"{environment}?team={file}") if not f.holds] == []
    protocol = protocol_of(load(str(file)), 0)
    for reply in (PLAN, ledger("group: guess")):
        protocol.take(protocol.next()[0], reply)
    assert protocol.next() == ["group.first", "group.second", "group.third"]
    for player in protocol.next():
        decision = protocol.take(player, "left")
    assert decision == "left"


def test_a_tool_that_a_worker_wrote_is_found_in_a_later_task(tmp_path: Path) -> None:
    worker = f"code?sandbox=unsafe&library={tmp_path}/library.jsonl"
    name = '```python\ndef name(*values):\n    """A thing."""\n    return " ".join(values)\n'
    made = f"{name}act('colour')\n```\n```test\nassert name('red', 'big') == 'red big'\n```"
    used = "```python\nact(name('red', 'big'))\n```"
    first, later = (
        run(
            InTeam(Questions("things-2"), "orchestrator"),
            {
                "lead": ScriptedModel([PLAN, *[ledger("solver: answer")] * 2]),
                "solver": ScriptedModel(replies),
                "agent": ScriptedModel([]),
            },
            PlayersAgent(solver=worker.replace("?", "%3F").replace("&", "%26")),
        )
        for replies in ([made, used], [used])
    )
    assert [step.action.text for step in later.steps][2:] == [first.steps[-1].action.text]
    calls = [call for call in later.calls if call.role == "solver"]
    assert "name(*values)" in calls[0].messages[0].text.partition(KNOWN)[2]


# ── the reader ───────────────────────────────────────────────────────────────


def test_the_reader_excludes_whom_it_tried_until_the_work_changes() -> None:
    listed = "Workers:\n- a: lock\n- b: paint\n- c: lock, open\n" + ASKED["ledger"]
    messages = [user(f"You are lead.\nLock it.\n{ASKED['plan']}")]
    messages.append(assistant(write_plan(read(messages))))
    assert "plan: by skills" in messages[-1].text
    messages.append(user(listed))
    messages.append(assistant(write_turn(read(messages), stalled=False)))
    assert messages[-1].text == "done: no\nstalled: no\nnext: Lock it."
    news = "Your team did: x\nLock it.\na took the work.\n"
    messages.append(user(f"{news}The work has stalled; make a new plan.\n{ASKED['plan']}"))
    assert read(messages).stalls
    messages.append(assistant(write_plan(read(messages))))
    assert messages[-1].text == "facts: Lock it.\nguesses: a cannot do it\nplan: not a"
    messages.append(user(listed))
    messages.append(assistant(write_turn(read(messages), stalled=False)))
    assert messages[-1].text.endswith("next: c: Lock it.")
    messages.append(user(f"Your team did: y\nPaint it.\nc took the work.\n{listed}"))
    assert write_turn(read(messages), stalled=True) == "done: no\nstalled: yes\nnext: Paint it."


@pytest.mark.parametrize(("work", "right"), [("paint it", 1.0), ("weigh it", 0.0)])
def test_a_reading_worker_is_right_within_its_skills(work: str, right: float) -> None:
    world = LocalEnvironment(Questions("things-2"))
    asyncio.run(world.reset(TASK))
    model = ReaderModel(PlayersAgent(), competence=Competence(outside=0.0)).for_environment(world)
    prompt = [user(f"You are a. Your skills: paint.\nYour work: {work}\n{ASKED['work']}")]
    assert model._within(prompt, 1.0) == right


# ── files that cannot work ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[members.x]", "must have one protocol"),
        ('[orchestrator]\nmember = "ann"\n[[stage]]\ndo = "act"', "must have one protocol"),
        ('[orchestrator]\nmember = "dan"', "names 'dan' as its orchestrator, who is no member"),
        ('[orchestrator]\nmember = "bob"', "makes 'bob' its orchestrator without the right 'act'"),
        (
            '[orchestrator]\nmember = "late"',
            "has 'late' as its orchestrator, who is not always there",
        ),
        ('[orchestrator]\nmember = "ann"\nstalls = 0', "'orchestrator.stalls': Input should be gr"),
        (
            '[supervisor]\nmember = "ann"\n[[stage]]\ndo = "act"\nwho = ["ann"]',
            "makes 'ann' its supervisor with",
        ),
        ('[[stage]]\ndo = "act"\nwho = ["late"]', "lacks members in stage 1 .act. in turn 1"),
        ('[[stage]]\ndo = "act"\nwho = ["ann"]\n[members.x]\nreserve = true', "whom nobody brings"),
        (
            '[members.x]\nfrom_turn = 3\nuntil_turn = 2\n[[stage]]\ndo = "act"\nwho = ["ann"]',
            "leaves before it co",
        ),
        (
            '[members.x]\nrights = ["act", "spawn"]\n[[stage]]\ndo = "act"\nwho = ["x"]',
            "gives 'x' the right 'spawn', which it cannot use",
        ),
    ],
)
def test_teams_that_could_not_work_are_refused_in_a_sentence(
    tmp_path: Path, text: str, error: str
) -> None:
    file = tmp_path / "team.toml"
    members = '[members.ann]\n[members.bob]\nrights = ["send"]\n[members.late]\nfrom_turn = 2\n'
    file.write_text(f"{members}{text}\n")
    with pytest.raises(InputError, match=error):
        load(str(file))


def test_the_record_says_what_each_member_of_an_orchestrated_team_did() -> None:
    lead = ScriptedModel([PLAN, ledger("checker: judge"), ledger("solver: answer")])
    models = {"agent": ReaderModel(PlayersAgent()), "lead": lead}
    found = conversation(run(InTeam(Questions("things-2"), "orchestrator"), models))
    assert [(move.player, move.does) for move in found.moves] == [
        ("lead", "plan"),
        ("lead", "ledger"),
        ("checker", "talk"),
        ("lead", "ledger"),
        ("solver", "act"),
    ]
    assert [(line.speaker, line.does, set(line.shown)) for line in found.lines] == [
        ("lead", "plan", {"checker", "solver"}),
        ("checker", "talk", {"lead", "solver"}),
    ]
