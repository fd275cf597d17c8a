"""Teams in Python: questions and decisions, memory, resuming, and classes that cannot act."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palaestra as pa
from palaestra.agents.players import PlayersAgent
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.core.team_words import ASKED, PASS
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.registry import make
from palaestra.environments.teams.own_protocol import Asking, TeamProtocol
from palaestra.environments.teams.protocol import protocol_of
from palaestra.environments.teams.team_file import Member, load
from tests.core.test_game import Delayed, Kept, Killed, play, same


class SecondOpinion(TeamProtocol):
    """Two propose, and a judge decides where they differ."""

    members: ClassVar = {
        "first": {},
        "second": {"instructions": "Doubt."},
        "judge": {"model": "reader?right=0.9"},
    }

    def turn(self) -> Asking:
        first, second = yield self.propose("first", "second")
        if first == second:
            return first
        return (yield self.act("judge"))[0]


class Turns(TeamProtocol):
    """A random member proposes; the others say whether it may, and it loses its turn if not."""

    members: ClassVar = {name: {} for name in ("ann", "bob", "cat")}

    def turn(self) -> Asking:
        refused = self.memory.setdefault("refused", [])
        for _ in range(3):
            names = [name for name in self.members if name not in refused]
            name = self.rng.choice(names or list(self.members))
            others = [other for other in self.members if other != name]
            [proposal] = yield self.propose(name)
            words = yield self.talk(*others, asked=f"May {name} do that in '{self.observation}'?")
            if all(word is None or word.startswith("yes") for word in words):
                return proposal
            refused.append(name)
        return (yield self.act("ann"))[0]


def id_of(cls: type[TeamProtocol]) -> str:
    return f"{__name__}:{cls.__name__}"


def begun(cls: type[TeamProtocol], seed: int = 0) -> TeamProtocol:
    protocol = protocol_of(load(id_of(cls)), seed)
    assert isinstance(protocol, TeamProtocol)
    protocol.begin("start")
    return protocol


def test_members_that_agree_decide_and_a_judge_is_asked_where_they_differ() -> None:
    protocol = begun(SecondOpinion)
    assert protocol.next() == ["first", "second"] and protocol.asked() == ASKED["propose"]
    assert protocol.take("second", "b") is None  # in any order
    assert protocol.next() == ["first"] and protocol.said() == []
    assert protocol.take("first", "a") is None
    assert protocol.said() == [("first", "first proposes: a"), ("second", "second proposes: b")]
    assert protocol.next() == ["judge"]
    assert protocol.asked() == f"first proposes: a\nsecond proposes: b\n{ASKED['act']}"
    assert protocol.kind("judge", "b") == "act" and protocol.take("judge", "b") == "b"
    protocol.begin_turn("next")
    assert [protocol.take(member, "c") for member in protocol.next()] == [None, "c"]
    assert protocol.observation == "next"


def test_nobody_has_decided_if_turn_returns_none_or_asks_for_too_much() -> None:
    protocol = begun(SecondOpinion)
    assert [protocol.take(member, PASS) for member in protocol.next()] == [None, PASS]
    protocol.begin_turn("again")
    protocol.replies = 2  # type: ignore[misc]
    assert [protocol.take(member, member) for member in protocol.next()] == [None, PASS]


def test_the_class_has_the_keys_of_a_file() -> None:
    team = load(id_of(SecondOpinion))
    assert team.members["second"] == Member(instructions="Doubt.")
    assert team.see == "all" and team.limits.turns is None
    assert begun(SecondOpinion).most_replies() == 20
    assert begun(SecondOpinion).most_replies({"judge": 3}) == 60


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(["yes", "no", PASS, "a"]), max_size=25))
def test_a_turn_goes_on_as_it_was_after_any_reply(seed: int, replies: list[str]) -> None:
    whole, resumed = begun(Turns, seed), begun(Turns, seed)
    for reply in replies:
        again = protocol_of(load(id_of(Turns)), seed)
        again.restore(json.loads(json.dumps(resumed.saved())))
        assert (again.key(), again.next(), again.said()) == (whole.key(), whole.next(), [])
        assert again.asked() == whole.asked()
        player = whole.next()[-1]
        decision = whole.take(player, reply)
        assert again.take(player, reply) == decision and again.said() == whole.said()
        resumed = again  # type: ignore[assignment]
        if decision is not None:
            whole.begin_turn("more")
            resumed.begin_turn("more")
    assert resumed.memory == whole.memory


@pytest.mark.parametrize("cls", [SecondOpinion, Turns])
def test_environments_with_such_teams_keep_the_contract(cls: type[TeamProtocol]) -> None:
    found = check_environment(f"questions/things-2?team={id_of(cls)}")
    assert [clause for clause in found if not clause.holds] == []


def test_such_a_team_plays_in_a_game_is_fast_or_slow_and_goes_on_where_it_was_killed() -> None:
    id = f"tests.core.games:Tally?team=ann:{id_of(SecondOpinion)},bob:majority"

    def delayed(seed: int) -> dict[str, Delayed]:
        rng = random.Random(seed)
        return {"agent": Delayed(lambda: rng.randrange(4))}

    whole = play(make(id), PlayersAgent(), delayed(0), journal=(kept := Kept()))
    for most in range(0, len(kept.events), 3):
        journal = Kept(most)
        with pytest.raises(Killed):
            play(make(id), PlayersAgent(), delayed(most), journal=journal)
        resumed = play(make(id), PlayersAgent(), delayed(most), past=journal.events)
        assert same(resumed) == same(whole)


def test_a_class_is_a_team_in_python_and_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"model": "reader?right=0.6", "n": 12, "progress": False}
    results = pa.evaluate("questions/things-2", team=SecondOpinion, run=tmp_path / "a", **options)
    assert [*results.episodes[0].results] == ["first", "second", "judge"]
    assert {step.transition.info["team"]["does"] for step in results.episodes[0].steps} >= {
        "propose"
    }
    (tmp_path / "teams_of_mine.py").write_text(
        "import palaestra as pa\n"
        "class Pair(pa.TeamProtocol):\n"
        "    members = {'one': {}, 'two': {}}\n"
        "    def turn(self):\n"
        "        return (yield self.act(self.rng.choice(['one', 'two'])))[0]\n"
    )
    (tmp_path / "outer.toml").write_text(
        "[members.pair]\nteam = 'teams_of_mine:Pair'\n[members.other]\n"
        "[[stage]]\ndo = 'propose'\n[[stage]]\ndo = 'count'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    given = ["eval", "--env", "questions/things-2", "-n", "4", "--model", "expert"]
    for team in ("teams_of_mine:Pair", "outer.toml"):
        run = str(tmp_path / f"run-{team[:5]}")
        assert main([*given, "--workers", "0", "--team", team, "--run", run]) == 0
        assert pa.Run(run).results.success == 1.0


class NoTurn(TeamProtocol):
    members: ClassVar = {"a": {}, "b": {}}

    def turn(self) -> Asking:
        return self.act("a")  # type: ignore[return-value]


class NoMembers(TeamProtocol):
    def turn(self) -> Asking:
        return (yield self.act("a"))[0]


class Wrong(TeamProtocol):
    """Does what `how` says; each parameter of the test is a subclass."""

    members: ClassVar = {"a": {}, "b": {"rights": ["send"]}}
    how: ClassVar[Callable[[Any], Asking]]

    def turn(self) -> Asking:
        return (yield from type(self).how(self))


def endless(team: TeamProtocol) -> Asking:
    replies: list[str | None] = []
    while replies != ["yes"]:
        replies = yield team.talk("a")
    return (yield team.act("a"))[0]


def asking(question: Callable[[TeamProtocol], Any]) -> Callable[[TeamProtocol], Asking]:
    def how(team: TeamProtocol) -> Asking:
        return (yield question(team))[0]

    return how


def silent(team: TeamProtocol) -> Asking:
    yield from ()
    return "a"


def forgetful(team: Any) -> Asking:
    team.count = getattr(team, "count", 0) + 1  # not in `memory`
    [reply] = yield team.talk("a", asked=f"Turn {team.count}")
    return reply or "a"


def numeric(team: TeamProtocol) -> Asking:
    [reply] = yield team.act("a")
    return len(reply or "")  # type: ignore[return-value]


def unsaved(team: TeamProtocol) -> Asking:
    team.memory["seen"] = {1, 2}
    return (yield team.act("a"))[0]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (endless, r"asks for more than 20 replies in a turn if they are '\(pass\)'; let `turn`"),
        (asking(lambda t: t.act("c")), "asks 'c', who is no member; name one of a, b."),
        (asking(lambda t: t.propose("a", "b")), "lets 'b' propose without the right 'act'; add"),
        (asking(lambda t: t.talk()), "name members, each once"),
        (asking(lambda t: t.talk("a", "a")), "name members, each once"),
        (asking(lambda t: "a"), "yields 'a'; yield self.talk, self.propose or self.act."),
        (silent, "asks nobody in a turn; yield a question before you return."),
        (forgetful, "goes on in another way once it was resumed; keep what it remembers in"),
        (numeric, "returns 0; return a text, or None"),
        (unsaved, "keeps no JSON in self.memory"),
    ],
)
def test_a_class_that_could_not_act_is_refused_in_a_sentence(
    how: Callable[[Any], Asking], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = type("Wrong", (Wrong,), {"how": how, "__module__": __name__})
    monkeypatch.setitem(globals(), "Wrong", cls)
    with pytest.raises(InputError, match=sentence):
        load(f"{__name__}:Wrong")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"members": {"a": {}}}, "'members': Dictionary should have at least 2 items"),
        ({"members": {"a": {}, "b": {"from_turn": 2}}}, "gives 'b' turns of its own or the right"),
        ({"members": {"a": {}, "b": {"rights": ["halt"]}}}, "gives 'b' turns of its own or the"),
        ({"members": {"a.b": {}, "b": {}}}, "has a member 'a.b'; leave '.' and '/' out of names"),
        ({"see": "neighbours"}, "must set edges with see = 'neighbours', and only then"),
        ({"replies": 0}, "allows 0 replies; allow 1 or more."),
    ],
)
def test_wrong_keys_are_refused_in_a_sentence(
    keys: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = type("Wrong", (SecondOpinion,), {**keys, "__module__": __name__})
    monkeypatch.setitem(globals(), "Wrong", cls)
    with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
        load(f"{__name__}:Wrong")


def test_names_of_no_such_class_are_refused_before_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["eval", "--env", "questions/things-2", "--model", "expert", "--team"]
    for team, sentence in [
        ("no_such_module:Team", "The module 'no_such_module' of the team"),
        (f"{__name__}:Path", "is not a subclass of palaestra's TeamProtocol"),
        (f"{__name__}:Missing", "is not a subclass of palaestra's TeamProtocol"),
        (id_of(NoTurn), "has no `turn` that yields questions; define it"),
        (id_of(NoMembers), "'members': Field required"),
    ]:
        assert main([*given, team]) == 2
        assert sentence in capsys.readouterr().err
