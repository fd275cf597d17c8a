"""The code host: Trac's worlds are apart and repeat, its repository is Git's, its tasks hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from importlib.util import find_spec
from shutil import which
from urllib.parse import urlencode

import pytest

from palaestra.browser.sites import Request, Response
from palaestra.core.errors import MissingSystemPart
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.real_sites.application import BEGIN, PLAIN, Variant
from palaestra.environments.families.real_sites.site_world import (
    LANGUAGES,
    SiteWorld,
    application,
)
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

for package in ("trac", "pkg_resources"):
    if find_spec(package) is None:
        pytest.skip("needs requirements/trac.txt", allow_module_level=True)
if which("git") is None:
    pytest.skip("needs the program git", allow_module_level=True)

OURS = [one for one in TEMPLATES.values() if one.group == "code"]
LIMITS = {"easy": 8, "medium": 16}  # gestures
HOST = "http://code.example"
needs_browser = pytest.mark.skipif(browser_missing() is not None, reason=str(browser_missing()))


def asked(
    world: SiteWorld, path: str, form: dict[str, str] | None = None, signed_in: bool = True
) -> Response:
    """Ask the site, as the person who is signed in at the start."""
    cookies = world.cookies()["code.example"] if signed_in else {}
    headers = {
        "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    if form is None:
        return world.sites["code"](Request("GET", f"{HOST}{path}", headers))
    body = urlencode({"__FORM_TOKEN": cookies.get("trac_form_token", ""), **form}).encode()
    return world.sites["code"](Request("POST", f"{HOST}{path}", headers, body))


def write_page(world: SiteWorld, text: str) -> Response:
    form = {"action": "edit", "version": "1", "text": text, "save": "1", "comment": ""}
    return asked(world, "/wiki/OnCall", form)


@pytest.fixture
def pair() -> Iterator[tuple[SiteWorld, SiteWorld]]:
    worlds = SiteWorld(["code"], 1), SiteWorld(["code"], 1)
    yield worlds
    for world in worlds:
        world.close()


def test_worlds_of_one_process_are_apart_and_equal_requests_give_equal_rows(
    pair: tuple[SiteWorld, SiteWorld],
) -> None:
    one, other = pair
    for world in pair:
        world.at(BEGIN + timedelta(seconds=5))
    assert write_page(one, "Nobody is on call.").status in (302, 303)
    [change] = one.changes()
    assert change.table == "code.wiki"
    assert change.values["time"] == int((BEGIN + timedelta(seconds=5)).timestamp()) * 1_000_000
    assert other.changes() == []
    # Trac remembers pages and versions; the other world must not see them.
    assert b"Nobody is on call." in asked(one, "/wiki/OnCall").body
    assert b"Nobody is on call." not in asked(other, "/wiki/OnCall").body
    write_page(other, "Nobody is on call.")
    for world in pair:
        asked(world, "/wiki/OnCall")
    assert one.key() == other.key()
    assert one.save() == other.save()


def test_what_was_saved_comes_back(pair: tuple[SiteWorld, SiteWorld]) -> None:
    one, other = pair
    write_page(one, "Nobody is on call.")
    asked(other, "/wiki/OnCall")
    saved = one.save()
    assert len(saved) < 10_000
    other.load(saved)
    assert other.changes() == one.changes()
    assert b"Nobody is on call." in asked(other, "/wiki/OnCall").body


def test_tokens_and_sessions_of_strangers_repeat(pair: tuple[SiteWorld, SiteWorld]) -> None:
    first, second = (asked(world, "/newticket", signed_in=False) for world in pair)
    assert first == second
    token, session = sorted(first.cookies)
    assert token.startswith("trac_form_token=") and session.startswith("trac_session=")
    assert "expires" not in session  # it would be a real time


def test_a_form_without_its_token_is_refused(pair: tuple[SiteWorld, SiteWorld]) -> None:
    world = pair[0]
    form = {"action": "edit", "text": "x", "save": "1", "version": "1", "__FORM_TOKEN": "0"}
    assert asked(world, "/wiki/OnCall", form).status == 400
    assert world.changes() == []


def test_seeds_give_other_projects_and_each_its_own_repository() -> None:
    worlds = [SiteWorld(["code"], seed) for seed in (1, 2)]
    newest = [world.rows("code.revision")[-1] for world in worlds]
    assert newest[0]["rev"] != newest[1]["rev"]
    for _ in range(2):  # by turns
        for world, row in zip(worlds, newest, strict=True):
            shown = asked(world, f"/changeset/{row['rev']}")
            assert shown.status == 200
            assert row["rev"].encode() in shown.body
    assert asked(worlds[0], f"/changeset/{newest[1]['rev']}").status == 404
    for world in worlds:
        world.close()


@pytest.mark.parametrize("path", ["none.js", "../templates/wiki_view.html", "%2e%2e/locale"])
def test_a_file_that_is_not_there_is_not_found(
    path: str, pair: tuple[SiteWorld, SiteWorld]
) -> None:
    assert asked(pair[0], f"/chrome/common/{path}").status == 404


def test_without_git_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    code = application("code")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingSystemPart, match="apt install git"):
        code.check()


@needs_browser
@of_templates(OURS, ("change-on-call",))
def test_the_reference_passes_and_planted_ends_fail(template: TaskTemplate) -> None:
    with closing(opened(template)) as env:
        check_ends(env, template, LIMITS[template.level])
        check_idle(env, task(template), possible=template.kind != "impossible")


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    check_contract("sites/code-easy", clause)


def test_there_are_templates_of_many_kinds() -> None:
    assert len(OURS) >= 25
    assert {one.kind for one in OURS} == {
        "find", "compare", "change", "configure", "moderate", "plan", "impossible",
    }  # fmt: skip


def test_large_worlds_have_more_of_all_and_repeat() -> None:
    small, large = (SiteWorld(["code"], 1, one) for one in (PLAIN, Variant(size="large")))
    for table in ("ticket", "revision", "session"):
        assert len(large.rows(f"code.{table}")) > 3 * len(small.rows(f"code.{table}"))
    assert {row["rev"] for row in large.rows("code.revision")}.isdisjoint(
        row["rev"] for row in small.rows("code.revision")
    )
    small.close()
    large.close()


def test_pages_are_in_the_language_of_the_world() -> None:
    world = SiteWorld(["code"], 1, Variant(language="de"))
    page = asked(world, "/newticket").body.decode()
    assert "Neues Ticket" in page
    assert world.sites["code"].application.label("New Ticket") == "Neues Ticket"
    assert "Browse Source" in asked(world, "/wiki", signed_in=False).body.decode()
    world.close()


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("variant", ["large", *LANGUAGES["code"]])
@pytest.mark.parametrize("template", OURS, ids=lambda one: one.name)
def test_the_reference_passes_in_other_worlds(template: TaskTemplate, variant: str) -> None:
    name = f"sites/code:{template.name}-{variant}"
    with closing(registry.make(name)) as env:
        env.reset(registry.tasks(name).task(Split.TEST, 0))
        for action in env.oracle():
            step = env.step(action)
            assert step.valid, f"{action.text}: {step.observation.text}"
        assert step.success


def test_of_settings_only_the_language_counts_whatever_else_is_written_anew() -> None:
    world = SiteWorld(["code"], 1, Variant(language="de"))
    for path in ("/query?status=!closed", "/prefs", "/timeline"):
        asked(world, path)
    asked(world, "/prefs", {"action": "save", "name": "Somebody", "email": "x@x.example"})
    assert world.rows("code.session_attribute", "value = 'Somebody'")
    assert world.changes() == []
    asked(world, "/prefs/localization", {"action": "save", "language": "fr"})
    gone, chosen = sorted(world.changes(), key=lambda one: one.kind)
    assert (gone.kind, chosen.kind) == ("delete", "insert")
    assert chosen.values["value"] == "fr"
    world.close()
