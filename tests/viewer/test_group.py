"""The rollouts of one task side by side, aligned by state where states have keys."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.alignment import Move, aligned, divergences
from tests.viewer.recorded_runs import RECIPE, Saying, roll_out, scripted, stairs_run
from tests.viewer.stores import client_of
from tests.viewer.test_episode import words

G = "/run/stairs/group/eval/test/0"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    root = tmp_path_factory.mktemp("runs")
    stairs_run(root)
    with RunFolder.create(root / "wide", RECIPE) as run:
        for member in range(64):
            plan = ["up"] * (member % 3) + ["fall"]
            run.database.finish(roll_out(Key("eval/test", 0, member), plan))
    with RunFolder.create(root / "keyless", RECIPE) as run:
        for member in range(2):
            key = Key("eval/test", 0, member)
            run.database.finish(scripted(key, ["a", "b" * (member + 1)], Saying(["x", "y"])))
    return client_of(root)


def test_members_stand_side_by_side_with_returns_and_how_they_ended(client: TestClient) -> None:
    text = words(client.get(G).text)
    assert "1 of 4 solved" in text
    assert "0 ✓ 1 ✗ 2 ✗ 3 ✗" in text
    assert "return 1.00 0.00 0.00 0.00" in text and "turns 3 3 1 3" in text
    assert "the environment's own rewards" in text


def test_advantages_are_computed_on_demand_and_then_remembered(client: TestClient) -> None:
    page = client.get(f"{G}?credit=1").text
    text = words(page)
    assert "Advantages by rloo: no recipe names a rule" in text and "those of training" in text
    found = re.search(r"advantage ([+-][\d.]+) ([+-][\d.]+) ([+-][\d.]+) ([+-][\d.]+)", text)
    assert found is not None
    values = [float(value) for value in found.groups()]
    assert values[0] > 0.5 and all(v < 0 for v in values[1:])
    assert abs(sum(values)) < 0.05  # leave-one-out sums to zero in a group
    assert "by rloo" in words(client.get(G).text)
    assert re.search(r'class="move credit p5"', page)


def test_where_they_part_is_reported_with_what_became_of_each(client: TestClient) -> None:
    text = words(client.get(f"{G}?credit=1").text)
    first = text[text.index("Where they diverge") : text.index("Side by side")]
    assert re.search(r"turn 3 You are on step 2 of 3\. up return 0\.9\d by 0 fall return 0", first)
    assert re.search(r"step 0 of 3\. up return 0\.\d+ by 0 1 3 fall return 0\.00 by 2", first)


def test_equal_states_share_a_row_and_a_turn_has_its_own(client: TestClient) -> None:
    by_state = words(client.get(f"{G}?all=1").text)
    # member 1 stays on step 1 for two turns: both stand in its cell of that row
    assert re.search(r"2 You are on step 1 of 3\. 2 up 2 sit 3 fall 2 up", by_state)
    by_turn = words(client.get(f"{G}?by=turn").text)
    assert "turn 2 up sit up" in by_turn


def test_without_keys_of_states_turns_are_aligned(client: TestClient) -> None:
    text = words(client.get("/run/keyless/group/eval/test/0").text)
    assert "the environment declares no state keys" in text
    assert "turn 2 b bb" in text


def test_groups_of_sixty_four_are_shown_whole(client: TestClient) -> None:
    page = client.get("/run/wide/group/eval/test/0?credit=1").text
    assert page.count('title="failure">') == 64


def test_a_group_that_does_not_exist_is_answered_in_words(client: TestClient) -> None:
    for address in ("eval/test/9", "eval/test/0.1", "nothing"):
        assert client.get(f"/run/stairs/group/{address}").status_code == 404


def test_rows_are_states_and_the_most_telling_parting_comes_first() -> None:
    def move(member: int, turn: int, action: str, state: str) -> Move:
        return Move(member, turn, f"saw {state}", action, state, True, 0.0, None)

    moves = [move(0, 1, "a", "s"), move(1, 1, "a", "s"), move(2, 1, "b", "s")]
    moves += [move(0, 2, "a", "t"), move(1, 3, "b", "t")]
    rows = aligned(moves, {0: 1.0, 1: 0.0, 2: 0.4}, by_state=True)
    assert [(row.name, row.first) for row in rows] == [("saw s", 1), ("saw t", 2)]
    assert [(c.action, c.members, c.result) for c in rows[0].choices] == [
        ("a", (0, 1), 0.5),
        ("b", (2,), 0.4),
    ]
    assert [row.name for row in divergences(rows)] == ["saw t", "saw s"]
    assert [row.name for row in aligned(moves, {}, by_state=False)] == [
        "turn 1",
        "turn 2",
        "turn 3",
    ]
