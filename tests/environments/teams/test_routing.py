"""Decentralised routing: forwarding, splitting, and what a network learns from a run."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Signals, Transition
from palaestra.core.environment import Observation as Seen
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import InputError
from palaestra.core.message import user
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.routing_words import Work, part, read_part, read_work, routing_asked, work
from palaestra.core.task import Task
from palaestra.core.team_words import PASS
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.teams.learned_routes import MEMORY, learned, without
from palaestra.environments.teams.routing import Routing
from palaestra.environments.teams.team_file import Team, load, parse
from palaestra.models.scripted import routing_reader

MEMBERS = ("ann", "bob", "cat")
TASK = "music question 4"


def team(**keys: object) -> Team:
    return Team.model_validate({"members": {name: {} for name in MEMBERS}, "routing": keys})


def routing(seed: int = 0, **keys: object) -> Routing:
    made = team(**keys)
    assert made.routing is not None
    protocol = Routing(made, made.routing, seed)
    protocol.begin(TASK)
    return protocol


def begun_with(member: str, **keys: object) -> Routing:
    """Return the routing of a task that begins with a member."""
    return next(one for seed in range(99) if (one := routing(seed, **keys)).next() == [member])


def test_a_task_begins_with_any_member_and_whoever_holds_it_may_do_it() -> None:
    assert {routing(seed).next()[0] for seed in range(20)} == {*MEMBERS}
    protocol = begun_with("bob")
    assert protocol.take("bob", "b") == "b"
    assert protocol.facts() == {"routes": [{"task": TASK, "path": ["bob"], "split": False}]}


def test_a_task_is_forwarded_at_most_so_often_and_to_nobody_twice() -> None:
    protocol = begun_with("ann", hops=2)
    assert protocol.take("ann", "Forward BOB.") is None and protocol.next() == ["bob"]
    assert protocol.refusal("forward ann") is not None and "cat solved" in protocol.asked()
    assert protocol.take("bob", "forward cat") is None
    assert protocol.asked() == "Reply with the action, or: split PART | PART."
    assert protocol.take("cat", "a") == "a"
    assert protocol.facts()["routes"][0]["path"] == ["ann", "bob", "cat"]
    short = begun_with("ann", hops=1)
    short.take("ann", "forward bob")
    assert "forward" not in short.asked() and short.refusal("forward cat") is not None


def test_parts_are_routed_one_after_the_other_and_joined_by_who_split() -> None:
    protocol = begun_with("ann")
    assert protocol.kind("ann", "split 1. music | 2. law") == "split"
    assert protocol.take("ann", "split 1. music | 2. law") is None
    assert protocol.kind("ann", "forward cat") == "forward" and protocol.kind("ann", "c") == "act"
    assert protocol.next() == ["ann"] and "Part of the task: 1. music" in protocol.asked()
    assert protocol.refusal("split a | b") is not None
    assert protocol.take("ann", "forward cat") is None and protocol.next() == ["cat"]
    assert protocol.take("cat", "x") is None
    assert protocol.next() == ["ann"] and "Part of the task: 2. law" in protocol.asked()
    assert protocol.take("ann", "y") is None
    assert protocol.asked().splitlines()[:2] == [part("1. music", "x"), part("2. law", "y")]
    assert protocol.take("ann", "x y") == "x y"
    assert protocol.facts()["routes"] == [
        {"task": "1. music", "path": ["ann", "cat"], "split": False},
        {"task": "2. law", "path": ["ann"], "split": False},
        {"task": TASK, "path": ["ann"], "split": True},
    ]


def test_who_passes_is_replaced_until_nobody_is_left() -> None:
    protocol = begun_with("bob")
    assert protocol.take("bob", PASS) is None and protocol.next() == ["ann"]
    assert protocol.take("ann", PASS) is None and protocol.next() == ["cat"]
    assert protocol.take("cat", PASS) == PASS and protocol.facts() == {"routes": []}


def test_an_edge_below_the_cut_is_gone_and_similar_work_counts_by_its_similarity() -> None:
    protocol = begun_with(
        "ann",
        edges={"ann": {"bob": 0.2, "cat": 0.9}},
        past={
            "ann": (("music question 1", False), ("music question 5", False)),
            "cat": (("music question 2", True), ("law question 3", True)),
        },
    )
    lines = [one for line in protocol.asked().splitlines() if (one := read_work(line))]
    assert [one.member for one in lines] == [None, "cat"]
    assert lines[0] == Work(None, 0.0, 2.0) and lines[1].solved == lines[1].tried
    assert 1.0 < lines[1].tried < 1.5  # the task about law shares only "question"
    assert protocol.refusal("forward bob") is not None


def test_words_are_read_as_they_were_written() -> None:
    assert read_work(work(Work("ann", 2, 3.5), 0.25)) == Work("ann", 2, 3.5)
    assert read_work(work(Work(None, 2, 3.5))) == Work(None, 2, 3.5)
    assert read_part(part("1. a Answer: b", "c")) == ("1. a Answer: b", "c")
    assert read_part(part("1. a")) == ("1. a", None) and read_part("1. a") is None


@given(st.lists(st.sampled_from(["a", PASS, *(f"forward {m}" for m in MEMBERS), "split a | b"])))
def test_routing_survives_being_saved_and_bounds_its_replies(texts: list[str]) -> None:
    protocol, count = routing(), 0
    for text in texts:
        again = routing(1)
        again.restore(json.loads(json.dumps(protocol.saved())))
        again.seed = protocol.seed
        assert (again.next(), again.asked()) == (protocol.next(), protocol.asked())
        protocol = again
        if protocol.refusal(text) is not None:
            continue
        count += 1
        assert count <= protocol.most_replies()
        if protocol.take(protocol.next()[0], text) is not None:
            protocol.begin_turn()
            count = 0


# ── what a network learns ────────────────────────────────────────────────────


def episode(number: int, solved: bool, *routes: dict[str, object]) -> Episode:
    info = {"team": {"does": "act", "facts": {"routes": routes}}}
    last = Transition(Seen("Over."), terminated=True, success=solved, info=info)
    step = Step(0, None, Action("a"), last, Signals())
    outcome = Outcome.success() if solved else Outcome.failure()
    return Episode(
        Key("test", number),
        Task("test/0", "x", seed=0),
        "players",
        None,
        (),
        (step,),
        outcome,
        Usage(),
    )


def route(task: str, *path: str, split: bool = False) -> dict[str, object]:
    return {"task": task, "path": path, "split": split}


def test_edges_and_memories_by_hand() -> None:
    """An edge goes 1 -> 0.9 (a failure) -> 0.9 * 0.9 + 0.1 = 0.91 (a success)."""
    lost = episode(0, False, route("one", "ann", "bob"))
    won = episode(1, True, route("two", "ann", "bob", "cat"), route("all", "ann", split=True))
    broken = episode(2, True, route("three", "ann", "bob"))
    broken = Episode(
        broken.key, broken.task, "players", None, (), broken.steps,
        Outcome.error("crash", Owner.ENVIRONMENT), Usage(),
    )  # fmt: skip
    after = learned(team(), [broken, won, lost]).routing
    assert after is not None
    assert after.edges == {"ann": {"bob": pytest.approx(0.91)}, "bob": {"cat": 1.0}}
    assert after.past == {"bob": (("one", False),), "cat": (("two", True),)}


@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6))
def test_what_is_learned_does_not_depend_on_the_order_in_which_episodes_ended(
    order: list[int], solved: list[bool]
) -> None:
    episodes = [
        episode(n, solved[n], route(f"task {n}", *random.Random(n).sample(MEMBERS, 2)))
        for n in range(6)
    ]
    assert learned(team(), [episodes[n] for n in order]) == learned(team(), episodes)


def test_a_full_memory_forgets_the_oldest_of_what_it_has_most() -> None:
    rare = [episode(n, False, route(f"law question {n}", "ann")) for n in range(5)]
    many = [episode(n, True, route(f"music question {n}", "ann")) for n in range(5, MEMORY + 14)]
    after = learned(team(), [*rare, *many]).routing
    assert after is not None
    tasks = after.past["ann"]
    assert len(tasks) == MEMORY and tasks[-1] == (f"music question {MEMORY + 13}", True)
    assert [task for task, _ in tasks[:6]] == [
        *(f"law question {n}" for n in range(5)), "music question 19",
    ]  # fmt: skip


def test_a_member_is_taken_out_with_all_that_was_learned_about_it() -> None:
    made = learned(team(), [episode(0, True, route("one", "ann", "bob"), route("two", "cat"))])
    left = without(made, "bob")
    assert [*left.members] == ["ann", "cat"] and left.routing is not None
    assert left.routing.edges == {"ann": {}} and left.routing.past == {"cat": (("two", True),)}
    late = learned(left, [episode(0, True, route("three", "bob", "cat"), route("four", "bob"))])
    assert late.routing is not None
    assert late.routing.past == {"cat": (("two", True), ("three", True))}
    with pytest.raises(InputError, match="no member 'dan'; name one of ann, bob, cat"):
        without(made, "dan")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("edges = {ann = {dan = 0.5}}", "has learned about 'dan', who is no member"),
        ('past = {dan = [["a", true]]}', "has learned about 'dan', who is no member"),
        ("edges = {ann = {bob = 2.0}}", "edges.ann.bob': Input should be less than or equal"),
        ("hops = 0", "'routing.hops': Input should be greater than or equal to 1"),
    ],
)
def test_routing_that_could_not_be_used(more: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        parse("mine", f"[members.ann]\n[members.bob]\n[routing]\n{more}\n")


# ── members that read ────────────────────────────────────────────────────────


def test_a_reader_forwards_to_who_did_well_and_splits_lines() -> None:
    text = "\n".join([work(Work(None, 0, 30)), work(Work("bob", 30, 30), 1)])
    asked = "Reply with the action, or: forward NAME, or: split PART | PART."
    assert routing_reader.route(text, text, asked, random.Random(0)) == "forward bob"
    lines = f"1. music\n2. law\n{text}"
    assert routing_reader.route(text, lines, asked, random.Random(0)) == "split 1. music | 2. law"
    assert routing_reader.word_of("2. law", "a b") == "b"
    assert routing_reader.joined(f"{part('x', 'a')}\n{part('y', 'b')}") == "a b"


SPECIALISTS = """
[members.ann]
skills = "physics"
[members.bob]
skills = "music"
[members.cat]
skills = "law"
[routing]
hops = 1
"""
"""Members that are always right in their own skill, and never in others."""


def solved(file: Path, run: Path, shard: str) -> float:
    """Return the success on a part of the tasks."""
    world = "tests.environments.teams.skills:Skills"
    given = [
        "eval",
        "--env",
        world,
        "--team",
        str(file),
        "--model",
        "reader?outside=0",
        "-n",
        "160",
    ]
    assert main([*given, "--shard", shard, "--run", str(run), "--workers", "0"]) == 0
    found = pa.Run(run).results.success
    assert found is not None
    return found


@pytest.mark.slow
def test_a_team_learns_from_a_run_whom_to_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks of two skills can be solved only by those who split and forward them."""
    file, run, after = tmp_path / "team.toml", tmp_path / "run", tmp_path / "after.toml"
    file.write_text(SPECIALISTS)
    assert solved(file, run, "1/2") < 0.4
    assert main(["team", str(run), "--to", str(after)]) == 0
    assert solved(after, tmp_path / "next", "2/2") > 0.9
    capsys.readouterr()
    assert main(["team", str(tmp_path / "next"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [member["member"] for member in found["members"]] == ["ann", "bob", "cat"]
    assert all(member["solved"] > 0.9 * member["done"] > 0 for member in found["members"])
    small = tmp_path / "small.toml"
    assert main(["team", str(run), "--without", "cat", "--to", str(small)]) == 0
    assert load(str(small)) == without(load(str(after)), "cat")
    assert main(["team", str(run), "--to", str(after)]) == 2
    assert "exists, and runs may depend on it" in capsys.readouterr().err
    for wrong, error in [
        (["--without", "dan", "--to", f"{tmp_path}/x.toml"], "no member 'dan'"),
        (["--without", "ann"], "say where the team goes with --to"),
        (
            ["--without", "ann", "--without", "bob", "--to", f"{tmp_path}/x.toml"],
            "at least 2 items",
        ),
    ]:
        assert main(["team", str(run), *wrong]) == 2
        assert error in capsys.readouterr().err
    assert not (tmp_path / "x.toml").exists()


def test_a_run_without_a_team_that_learns_or_rates_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for team, error in [
        (None, "No team acted in this run"),
        ("majority", "has neither .network. nor"),
    ]:
        run = tmp_path / f"{team}"
        pa.evaluate(
            "questions/things-2", team=team, model="expert", n=2, run=run, workers=0,
            progress=False,
        )  # fmt: skip
        assert main(["team", str(run)]) == 2
        assert re.search(error, capsys.readouterr().err)


def test_routing_keeps_the_contract(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text(SPECIALISTS)
    id = f"tests.environments.teams.skills:Skills?team={file}"
    assert [f for f in check_environment(id) if not f.holds] == []


def test_what_a_holder_needs_skills_for() -> None:
    def at_hand(*lines: str) -> list[str]:
        asked = routing_asked(forward=True, split=True)
        return routing_reader.tasks_at_hand([user("\n".join([*lines, asked]))])

    skilled = "You are ann, in a team with bob. Your skills: music."
    assert at_hand(skilled, "1. law", "2. physics") == ["1. law", "2. physics"]
    assert at_hand(skilled, "1. law", "2. physics", part("2. physics")) == ["2. physics"]
    assert "music" not in at_hand(skilled, "a law question")[0]
    assert routing_reader.tasks_at_hand([user("a law question\nPropose an action.")]) == []
