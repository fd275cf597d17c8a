"""Layered networks: who answers, who is kept, and what each member contributed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.core.team_words import ASKED, PASS
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.teams.layered_network import LayeredNetwork, importance, normalised
from palaestra.environments.teams.protocol import protocol_of
from palaestra.environments.teams.protocol_tables import Network
from palaestra.environments.teams.team_file import Team, load, parse
from palaestra.environments.teams.votes import parse_ratings

MEMBERS = ("ann", "bob", "cat", "dan")


def network(seed: int = 0, **keys: object) -> LayeredNetwork:
    team = Team.model_validate({"members": {name: {} for name in MEMBERS}, "network": keys})
    assert team.network is not None
    return LayeredNetwork(team, team.network, seed)


def replies(protocol: LayeredNetwork, *given: str) -> str | None:
    """Give replies in the protocol's order; return the decision."""
    decision = None
    for text in given:
        assert decision is None and protocol.refusal(text) is None
        decision = protocol.take(protocol.next()[0], text)
    return decision


def test_the_best_rated_answer_again_and_the_last_layer_decides_by_plurality() -> None:
    protocol = network(layers=2, keep=2)
    assert replies(protocol, "left", "right", "up", "left") is None
    assert protocol.next() == [*MEMBERS]
    assert protocol.asked() == f"1: left\n2: right\n3: up\n{ASKED['rate']}"
    assert replies(protocol, "1, 5, 0", "0 5 0", "0, 4, 0", "2, 5, 0") is None
    assert protocol.next() in (["ann", "bob"], ["bob", "dan"])  # bob is best, the others equal
    assert protocol.asked() == ASKED["propose"]
    assert replies(protocol, "right", "right") == "right"


def test_chance_decides_between_equals_and_follows_from_the_seed() -> None:
    def kept(seed: int) -> list[str]:
        protocol = network(keep=1, seed=seed)
        replies(protocol, "left", "left", "right", "right", *["0, 0"] * 4)
        return protocol.next()

    assert kept(1) == kept(1) and {kept(seed)[0] for seed in range(30)} == {*MEMBERS}


def test_more_than_two_thirds_of_equal_answers_end_a_turn_early() -> None:
    assert replies(network(), "left", "left", "left", "right") == "left"
    assert replies(network(), "left", "left", PASS, "right") is None  # two of three
    assert replies(network(consensus=1), *["left"] * 4) is None


def test_the_layer_before_decides_where_nobody_answers() -> None:
    assert replies(network(), *[PASS] * 4) == PASS
    protocol = network(keep=1)
    given = ["left", "right", "right", "left", PASS, PASS, PASS, PASS, PASS]
    assert replies(protocol, *given) == "left"
    assert protocol.facts()["importance"] == {"ann": 0.5, "bob": 0, "cat": 0, "dan": 0.5}


def test_importance_by_hand() -> None:
    """Three answer, two of them again; "a" is taken, so that only ann's last answer counts.

    Ann rated the first answers 5, 5 and 0, bob 1, 0 and 4, so I[1] = 1/2, 1/2, 0 by ann alone.
    """
    protocol = LayeredNetwork(
        Team.model_validate({"members": {"ann": {}, "bob": {}, "cat": {}}, "network": {}}),
        Network(layers=2, keep=2),
        0,
    )
    replies(protocol, "a", "b", "c", "5, 5, 0", "1, 0, 4", "0, 5, 1")
    # shares: ann 1/2 + 1/5 + 0, bob 1/2 + 0 + 5/6, cat 0 + 4/5 + 1/6: bob and cat go on
    assert protocol.next() == ["bob", "cat"]
    assert replies(protocol, "a", "c") == "a"
    assert protocol.facts() == {
        "importance": pytest.approx({"ann": 0.2, "bob": 1.0, "cat": 0.8}),
        "layers": 2,
    }


ratings = st.lists(st.integers(0, 5), min_size=3, max_size=3)


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=3, max_size=3), min_size=1, max_size=4),
    st.lists(st.lists(ratings, min_size=3, max_size=3), min_size=3, max_size=3),
)
def test_each_layers_importance_sums_to_one(
    texts: list[list[str]], given_ratings: list[list[list[int]]]
) -> None:
    members = MEMBERS[:3]
    answers = [dict(zip(members, row, strict=True)) for row in texts]
    weights = [
        {
            m: normalised(dict(zip(members, row, strict=True)))
            for m, row in zip(members, rows, strict=True)
        }
        for rows in given_ratings[: len(answers) - 1]
    ]
    layers = importance(answers, weights)
    assert len(layers) == len(answers)
    for layer in layers:
        assert sum(layer.values()) == pytest.approx(1)


@given(st.lists(st.integers(1, 5), min_size=9, max_size=9), st.sampled_from("abc"))
def test_who_is_rated_zero_by_all_has_no_importance_in_that_layer(
    numbers: list[int], last: str
) -> None:
    members = MEMBERS[:3]
    rows = [dict(zip(members, numbers[3 * k : 3 * k + 3], strict=True)) for k in range(3)]
    weights = {m: normalised({**row, "bob": 0}) for m, row in zip(members, rows, strict=True)}
    first = dict(zip(members, "abc", strict=True))
    layers = importance([first, dict.fromkeys(members, last)], [weights])
    assert layers[0]["bob"] == 0 and layers[0]["ann"] > 0


def test_ratings() -> None:
    assert parse_ratings("5, 0, 3.5", 3) == [5, 0, 3.5]
    assert parse_ratings("5, 0", 3) is None and parse_ratings("6, 0, 0", 3) is None
    assert parse_ratings("-1, 0, 0", 3) is None and parse_ratings("5 of 5, 1, 2", 3) is None
    assert normalised({"ann": 0, "bob": 0}) == {"ann": 0.5, "bob": 0.5}


@given(st.lists(st.sampled_from(["a", "b", "c", PASS, "5", "0, 1", "1, 2, 3"]), max_size=40))
def test_a_network_survives_being_saved_and_bounds_its_replies(texts: list[str]) -> None:
    protocol, count = network(layers=3, keep=2), 0
    for text in texts:
        again = network(layers=3, keep=2)
        again.restore(json.loads(json.dumps(protocol.saved())))
        assert (again.next(), again.asked()) == (protocol.next(), protocol.asked())
        protocol = again
        if protocol.refusal(text) is None:
            count += 1
            assert count <= protocol.most_replies()
            if protocol.take(protocol.next()[0], text) is not None:
                protocol.begin_turn()
                count = 0


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("[network]\nkeep = 3", "keeps 3 of 2 members; keep fewer"),
        ("[network]\nlayers = 1", r"'network.layers': Input should be greater than or equal to 2"),
        ('[network]\n[[stage]]\ndo = "act"', "must have one protocol"),
        (
            "",
            r"must have one protocol: \[\[stage\]\], \[orchestrator\], \[network\], \[routing\] or",
        ),
        ('[members.cat]\nrights = ["send"]\n[network]', "lets 'cat' propose .* right 'act'"),
        ("[members.cat]\nfrom_turn = 2\n[network]", "in which 'cat' is not always there"),
        ('see = "own"\n[network]', "with `see` or a supervisor, which need stages"),
    ],
)
def test_networks_that_could_not_act(more: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        parse("mine", f"{more}\n[members.ann]\n[members.bob]\n")


def test_a_run_records_who_contributed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one who knows gets all importance; honest raters keep it, and the team is right."""
    file = tmp_path / "team.toml"
    members = "".join(
        f'[members.{name}]\nmodel = "reader?right={float(name == "bob")}"\n' for name in MEMBERS
    )
    file.write_text(f"{members}[network]\nlayers = 2\nkeep = 1\nconsensus = 1\n")
    run = tmp_path / "run"
    results = pa.evaluate(
        "questions/things-2", team=str(file), model="reader", n=8, run=run, workers=0,
        progress=False,
    )  # fmt: skip
    assert results.success == 1.0
    assert results.data["turns"] == 4 + 4 + 1
    for phase in pa.Run(run).phases:
        for episode in pa.Run(run).episodes(phase):
            does = Counter(step.transition.info["team"]["does"] for step in episode.steps)
            assert does == {"propose": 5, "rate": 4}
            assert episode.steps[-1].transition.info["team"]["facts"] == {
                "importance": {"ann": 0, "bob": 2, "cat": 0, "dan": 0},
                "layers": 2,
            }
    assert main(["team", str(run), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["members"]
    assert rows[0] == {"member": "bob", "importance": 2.0, "interval": [2.0, 2.0]}
    assert main(["team", str(run)]) == 0
    assert "2.000 to 2.000" in capsys.readouterr().out
    assert main(["team", str(run), "--to", str(tmp_path / "x.toml")]) == 2
    assert "a network learns nothing" in capsys.readouterr().err


def test_a_team_takes_a_member_s_place_in_a_network(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text('[members.ann]\n[members.bob]\nteam = "majority"\n[network]\nlayers = 2\n')
    broken = [f for f in check_environment(f"questions/things-2?team={file}") if not f.holds]
    assert broken == []


def test_the_template_is_a_network() -> None:
    assert isinstance(protocol_of(load("network"), 0), LayeredNetwork)
