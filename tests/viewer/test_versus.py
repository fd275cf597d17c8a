"""Comparisons: paired on the same tasks, with the tasks that flipped, or the reason why not."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from palaestra.evaluation.statistics.paired import mcnemar
from palaestra.viewer.pages.evaluation_page import pareto
from tests.viewer.recorded_runs import one_each, stairs_run
from tests.viewer.stores import client_of
from tests.viewer.test_episode import words

CLIMB, FALL, LOST = ["up"] * 3, ["fall"], ["up", "fall"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    root = tmp_path_factory.mktemp("runs")
    one_each(root, "first", {i: CLIMB if i == 0 else FALL for i in range(10)})
    one_each(root, "second", {i: LOST if i == 0 else CLIMB if i < 8 else FALL for i in range(12)})
    one_each(root, "elsewhere", dict.fromkeys(range(50, 53), FALL))
    stairs_run(root)
    return client_of(root)


AB = "/versus?a=first:test/rl&b=second:test/rl"


def test_two_runs_are_compared_on_the_tasks_that_both_have(client: TestClient) -> None:
    text = words(client.get(AB).text)
    # 7 gained (tasks 1 to 7), 1 lost (task 0), of 10 in common
    assert "b solves more: +60.0 points" in text and "over 10 tasks in common" in text
    assert f"McNemar's exact test: p = {mcnemar(7, 1):.3g}" in text
    assert "0 tasks of only a, 2 of only b" in text
    assert "7 gained, 1 lost, 2 the same" in text
    assert "10.0 %" in text and "70.0 %" in text


def test_a_reversed_comparison_changes_the_sign(client: TestClient) -> None:
    text = words(client.get("/versus?a=second:test/rl&b=first:test/rl").text)
    assert "b solves fewer: -60.0 points" in text and "1 gained, 7 lost" in text


def test_a_flipped_task_links_to_both_episodes(client: TestClient) -> None:
    page = client.get(AB).text
    assert 'href="/run/first/episode/test/rl/0.0">test/rl/0.0' in page
    assert 'href="/run/second/episode/test/rl/0.0">test/rl/0.0' in page
    assert re.search(r"lost test/0 100 % 0 %", words(page))


def test_the_heat_map_has_every_task_under_both(client: TestClient) -> None:
    page = client.get(AB).text
    assert page.count('<span class="tile">') == 12
    assert page.count('title="stairs test/11, first:test/rl: no result"') == 1
    assert page.count('class="h10"') - 1 == 1 + 7  # one stands in the legend


def test_failures_are_counted_by_what_they_share(client: TestClient) -> None:
    text = words(client.get(AB).text)
    assert "Unsolved in total: 9 (first:test/rl), 5 (second:test/rl)" in text
    assert "outcome failure 9 5" in text
    assert "fall 9 4" in text and "up › fall 1" in text


def test_what_cannot_be_compared_reports_why(client: TestClient) -> None:
    text = words(client.get("/versus?a=first:test/rl&b=elsewhere:test/rl").text)
    assert "none in common" in text and "Tasks" in text
    answer = client.get("/versus?a=first:nothing&b=second:test/rl")
    assert answer.status_code == 404 and "no phase 'nothing'" in words(answer.text)
    assert client.get("/versus?a=gone:x&b=second:test/rl").status_code == 404


def test_without_a_choice_the_page_offers_what_there_is(client: TestClient) -> None:
    assert '<option value="first:test/rl">' in client.get("/versus").text
    assert 'value="stairs:eval/test"' in client.get("/evaluation").text


def test_the_agent_and_model_of_each_side_are_named(client: TestClient) -> None:
    for page in (AB, "/evaluation?run=first&run=second", "/evaluation"):
        assert "direct with says" in words(client.get(page).text)


def test_several_evaluations_stand_in_a_matrix_with_intervals_and_cost(client: TestClient) -> None:
    page = client.get("/evaluation?run=first&run=second:test/rl&run=stairs").text
    text = words(page)
    assert "1 first:test/rl direct with says 10.0 % 1.8 to 40.4 10 tasks;" in text
    assert "3 stairs:eval/test" in text and "8 episodes" in text
    assert page.count('class="dot') == 3 and 'class="dot front"' in page
    assert "tokens read and sampled per task" in text
    turns = client.get("/evaluation?run=first&run=stairs&cost=turns").text
    assert turns.count('class="dot') == 2 and "turns per task" in words(turns)
    assert "run=first&amp;run=stairs&amp;cost=seconds" in turns
    money = client.get("/evaluation?run=first&cost=money").text
    assert "No model here has a known price" in words(money) and 'class="dot' not in money
    assert client.get("/evaluation?run=first&cost=luck").status_code == 404
    assert client.get("/evaluation?run=gone").status_code == 404


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    assert pareto([(5, 0.5), (1, 0.2), (2, 0.1), (9, 0.5), (7, 0.9)]) == [1, 0, 4]
    assert pareto([]) == []
