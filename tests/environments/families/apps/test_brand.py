"""What a brand knows: faults are as stated, can be found by reading alone, and are hidden else."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.knowledge_atoms import KINDS, OfArticles
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.histories.brand import INTENTS, QUESTIONS, RULES, TOPICS
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.setting import brand
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World

TODAY = START[:10]
WRONG = "knowledge_report_pair(article_id=1, other_id=39, kind='duplicate')"


def world(seed: int) -> World:
    suite = brand().suite
    return World(suite, world_template(suite, "small", seed), START)


def every(where: World, api: str) -> list[Row]:
    """Return all rows of a list, page by page, as an agent reads them."""
    rows: list[Row] = []
    for page in range(1, 99):
        body: Any = where.call(api, {"page": page, "per_page": 20}, MAIN).body
        rows += next(value for value in body.values() if isinstance(value, list))
        if page >= body["pages"]:
            return rows
    raise AssertionError(api)


def topic_of(article: Row) -> tuple[str, str, int]:
    """Return the topic, the product and the value of an article, by its words."""
    for topic, (_, ways) in TOPICS.items():
        for title, text in ways:
            product = re.fullmatch(re.escape(title).replace(r"\{0\}", "(.+)"), article["title"])
            value = re.match(re.escape(text).replace(r"\{1\}", r"(\d+)"), article["text"])
            if product and value:
                return topic, product[1], int(value[1])
    raise AssertionError(article)


def read(where: World) -> dict[str, set[tuple[int, ...]]]:
    """Find all faults by reading what the APIs show, and nothing else."""
    groups: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    found: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for article in every(where, "knowledge.list_articles"):
        topic, product, value = topic_of(article)
        if article["valid_until"] < TODAY:
            found["outdated"].add((article["id"],))
        else:
            groups[topic, product].append((article["id"], value))
    for group in groups.values():
        if len(group) == 2:
            (one, a), (other, b) = sorted(group)
            found["duplicate" if a == b else "contradiction"].add((one, other))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_faults_are_found_by_reading_alone(seed: int) -> None:
    with closing(world(seed)) as where:
        found = read(where)
        for kind in (kind() for kind in KINDS if issubclass(kind, OfArticles)):
            truths = where.state.find("knowledge.truth", kind=kind.kind)
            wanted = {tuple(ids) for ids in kind.wanted(where, truths)}
            assert found[kind.kind] == wanted and len(wanted) == 5
            assert {truth["topic"].split()[0] for truth in truths} == set(TOPICS)


def test_intents_and_breaches_are_found_by_reading_alone() -> None:
    with closing(world(0)) as where:
        intents = {row["path"]: row["id"] for row in every(where, "knowledge.list_intents")}
        rules = {row["says"]: row["id"] for row in every(where, "knowledge.list_rules")}
        for row in where.state.rows("knowledge.call"):
            body = where.call("knowledge.search_calls", {"query": row["number"]}, MAIN).body
            (said,) = (found["words"] for found in body["calls"])
            heard = {
                intents[path]
                for path, words in INTENTS.items()
                if re.search(re.escape(words).replace(r"\{0\}", ".+"), said)
            }
            broken = {rules[rule] for rule, _, wrong in RULES if f"Agent: {wrong}\n" in f"{said}\n"}
            for kind, wanted in (("intent", heard), ("breach", broken)):
                truths = where.state.find("knowledge.truth", kind=kind, one=row["id"])
                assert {truth["other"] for truth in truths} == wanted


def test_no_api_shows_the_truth() -> None:
    with closing(world(0)) as where:
        assert not [name for name in where.suite.apis if "truth" in name]
        assert "truth" not in str(where.call("knowledge.list_articles", {}, MAIN))


def test_a_pair_is_one_report_in_either_order() -> None:
    with closing(world(0)) as where:
        given = {"article_id": 5, "other_id": 3, "kind": "duplicate"}
        assert where.call("knowledge.report_pair", given, MAIN).ok
        assert (
            where.state.rows("knowledge.report")[0] | {"first_id": 3, "second_id": 5}
            == (where.state.rows("knowledge.report")[0])
        )
        again = {"article_id": 3, "other_id": 5, "kind": "contradiction"}
        assert where.call("knowledge.report_pair", again, MAIN).status == 409
        same = {"article_id": 3, "other_id": 3, "kind": "duplicate"}
        assert where.call("knowledge.report_pair", same, MAIN).status == 422


def test_progress_rises_with_pairs_found_and_falls_with_pairs_that_are_none() -> None:
    env, tasks = Apps("brand-easy"), Apps.tasks("apps/brand-easy")
    for number in range(40):
        env.reset(tasks.task(Split.TEST, number))
        plan = [action for action in env.oracle() if "report_pair" in action.text]
        if len(plan) == 5:
            break
    shares = [env.progress()]
    for action in (*plan[:2], Action(WRONG)):
        env.step(action)
        shares.append(env.progress())
    assert shares == pytest.approx([0, 1 / 6, 2 / 6, 1 / 6])
    *_, last = [env.step(action) for action in (*plan[2:], Action("finish()"))]
    assert last.info["effect"] and last.info["collateral"] and not last.success


def test_questions_are_in_other_words_than_articles() -> None:
    for topic, (_, ways) in TOPICS.items():
        assert all(QUESTIONS[topic] not in (title, text) for title, text in ways)


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of("apps/brand-easy"))


def test_a_reference_solves_tasks_and_constant_answers_do_not() -> None:
    for name in ("brand-hard", "brand-easy:discover"):
        env = Apps(name)
        for task in Apps.tasks(f"apps/{name}").take(Split.TEST, 2):
            for answer in ("", "I cannot do that.", "I hand this over to a person."):
                env.reset(task)
                assert not env.step(Action(f"finish(answer={answer!r})")).success
            env.reset(task)
            assert [env.step(action) for action in env.oracle()][-1].success
