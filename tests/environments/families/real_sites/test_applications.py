"""Real applications as sites: worlds are apart, equal gestures give equal rows, templates hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from importlib.util import find_spec

import pytest

from palaestra.browser.sites import Request, Response
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.real_sites.application import BEGIN
from palaestra.environments.families.real_sites.environment import Sites
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    TaskTemplate,
    WrongEnd,
    click_on,
)
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

for package in ("django", "oscar", "machina", "wagtail"):
    if find_spec(package) is None:
        pytest.skip("needs requirements/sites.txt", allow_module_level=True)

GROUPS = ("shop", "forum", "cms")
OURS = [one for one in TEMPLATES.values() if one.group in GROUPS]
FEW = ("lock-topic",)  # those that are tried in the fast suite
LIMITS = {"easy": 8, "medium": 16, "hard": 40}  # gestures
needs_browser = pytest.mark.skipif(browser_missing() is not None, reason=str(browser_missing()))
every = of_templates(OURS, FEW)


def asked(world: SiteWorld, site: str, path: str, body: bytes = b"", cookie: str = "") -> Response:
    """Ask a site as the signed-in person."""
    host = world.sites[site].application.host
    signed = "; ".join(f"{name}={value}" for name, value in world.cookies()[host].items())
    headers = {
        "Cookie": f"{signed}; {cookie}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Referer": f"http://{host}/",
        "Origin": f"http://{host}",
    }
    method = "POST" if body else "GET"
    return world.sites[site](Request(method, f"http://{host}{path}", headers, body))


def added(world: SiteWorld, product: int) -> Response:
    """Put a product into the shop's cart."""
    page = asked(world, "shop", f"/catalogue/x_{product}/").headers["Location"]
    shown = asked(world, "shop", page).body.decode()
    token = shown.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    cookie = f"csrftoken={token}"
    body = f"csrfmiddlewaretoken={token}&quantity=1".encode()
    return asked(world, "shop", f"/basket/add/{product}/", body, cookie)


@pytest.fixture
def pair() -> Iterator[tuple[SiteWorld, SiteWorld]]:
    worlds = SiteWorld(["shop"], 1), SiteWorld(["shop"], 1)
    yield worlds
    for world in worlds:
        world.close()


def test_worlds_of_one_process_are_apart_and_equal_requests_give_equal_rows(
    pair: tuple[SiteWorld, SiteWorld],
) -> None:
    one, other = pair
    assert one.key() == other.key()
    for world in pair:
        world.at(BEGIN + timedelta(seconds=5))
    assert added(one, 3).status == 302
    assert [(found.table, found.kind) for found in one.changes()] == [
        ("shop.basket_line", "insert")
    ]
    assert other.changes() == []
    added(other, 3)
    assert one.key() == other.key()
    assert one.save() == other.save()
    [line] = one.changes()
    assert line.after is not None
    assert line.after["date_created"] == "2026-01-01 00:00:05"


def test_what_was_saved_comes_back(pair: tuple[SiteWorld, SiteWorld]) -> None:
    one, other = pair
    added(one, 2)
    saved = one.save()
    assert len(saved) < 10_000
    other.load(saved)
    assert other.changes() == one.changes()
    assert b"Your cart is empty" not in asked(other, "shop", "/basket/").body


def test_seeds_give_other_worlds() -> None:
    titles = []
    for seed in (1, 2):
        world = SiteWorld(["shop"], seed)
        titles.append({row["title"] for row in world.rows("shop.catalogue_product")})
        world.close()
    assert titles[0] != titles[1]


@pytest.mark.parametrize("path", ["/media/drawn/ring-pink.png", "/media/../x", "/static/none.js"])
def test_a_file_that_is_not_there_is_not_found(path: str) -> None:
    world = SiteWorld(["forum"], 1)
    assert asked(world, "forum", path).status == 404
    world.close()


@needs_browser
@every
def test_the_reference_passes_and_planted_ends_fail(template: TaskTemplate) -> None:
    with closing(opened(template)) as env:
        check_ends(env, template, LIMITS[template.level])
        check_idle(env, task(template), possible=template.kind != "impossible")


@needs_browser
@pytest.mark.parametrize(
    "name",
    ["forum:reply", *(pytest.param(one, marks=pytest.mark.slow) for one in (
        "shop:add-to-cart", "shop:place-order", "cms:change-intro",
    ))],
)  # fmt: skip
def test_an_episode_comes_back_by_its_state(name: str) -> None:
    one = registry.tasks(f"sites/{name}").task(Split.TEST, 0)
    with closing(Sites(name)) as env, closing(Sites(name)) as other:
        other.reset(registry.tasks(f"sites/{name}").task(Split.TEST, 1))
        env.reset(one)
        *steps, last = env.oracle()
        for action in steps:
            env.step(action)
        assert len(env._saved_state()) < 10_000
        assert other._return_to(one, env._saved_state(), env._past)  # without a gesture
        assert other.elements() == env.elements()
        assert other._here()[1].key() == env._here()[1].key()
        other.restore(env.snapshot())
        assert other.state_key() == env.state_key()
        assert other.oracle() == [last]
        assert other.step(last) == env.step(last)
        assert other.progress() == 1.0


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", ["sites/shop-easy", "sites/forum-easy", "sites/cms-easy"])
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    check_contract(id, clause)


def test_there_are_templates_of_all_kinds() -> None:
    assert len(OURS) >= 30
    assert set(Counter(one.group for one in OURS)) == set(GROUPS)
    assert {one.kind for one in OURS} == {
        "find", "compare", "change", "configure", "moderate", "buy", "plan", "impossible",
    }  # fmt: skip


def test_a_line_that_is_no_gesture_is_no_part_of_a_task() -> None:
    assert Deed((click_on("Child's bicycle link"),)).gestures == ('click "Child\'s bicycle link"',)
    for part in (Deed, WrongEnd):
        with pytest.raises(InputError, match="is no gesture"):
            part(("click 'Child's bicycle link'",))


@needs_browser
def test_what_has_an_apostrophe_in_its_name_can_be_clicked() -> None:
    env = registry.make("sites/forum-medium")
    env.reset(registry.tasks("sites/forum-medium").task(Split.TEST, 6))
    plan = env.oracle()
    assert "Child's bicycle" in plan[1].text
    assert [env.step(action) for action in plan][-1].success
    env.close()
