"""The world beside a conversation: the clock, and rows that a step changed, only known ones."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from pathlib import Path
from typing import Any

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action
from palaestra.core.episode import Key
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments.families.apps.environment import Apps
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.world_views import without_world, world_view
from tests.viewer.stores import RECIPE, client_of

TASKS = Apps.tasks("apps/easy:all")


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_a_page_shows_the_clock_and_the_rows_that_each_step_changed(tmp_path: Path) -> None:
    agent, world = DirectAgent(), LocalEnvironment(Apps("easy:all"))
    models = {"agent": ExpertModel(agent).for_environment(world)}
    key, task = Key("eval/test", 0), TASKS.task(Split.TEST, 0)
    episode = asyncio.run(Session(key, task, world, agent, models).run())
    with RunFolder.create(tmp_path / "apps", RECIPE) as run:
        run.database.finish(episode)
    page = client_of(tmp_path).get("/run/apps/episode/eval/test/0.0").text
    assert "2026-03-02 09:00" in words(page)
    assert '+ contacts.contact 117 owner 1 name "Quartz bridge"' in words(page)
    assert '<ins>"Quartz bridge"</ins>' in unescape(page)


def info_of(env: Apps, call: str) -> dict[str, Any]:
    return dict(env.step(Action(call)).info)


def test_a_step_tells_the_rows_that_its_person_may_read_and_no_others() -> None:
    env = Apps("easy:all")
    env.reset(TASKS.task(Split.TEST, 0))
    other = env._running().state.get("supervisor.person", 2)
    assert other is not None
    sent = f"mail_send_message(recipient={other['email']!r}, subject='Hi', body='You there?')"
    rows = info_of(env, sent)["rows"]
    changed = {(made.table, made.id): made.after for made in env._running().state.changes()}
    assert len(changed) == 2, "a letter is a row in each mailbox"
    assert [(row["table"], row["after"]["owner"]) for row in rows] == [("mail.message", 1)]
    renamed = info_of(env, "contacts_update_contact(contact_id=1, name='Ada Byron')")["rows"]
    assert renamed[0]["after"] == {"name": "Ada Byron"}
    assert list(renamed[0]["before"]) == ["name"]
    gone = info_of(env, "contacts_delete_contact(contact_id=1)")
    assert gone["rows"][0]["after"] is None
    assert gone["rows"][0]["before"]["name"] == "Ada Byron"
    assert "rows" not in info_of(env, "contacts_delete_contact(contact_id=1)")
    assert "rows" not in info_of(env, "contacts_list_contacts()")


def test_a_restored_world_tells_what_changes_from_then_on() -> None:
    env, call = Apps("easy:all"), "contacts_delete_contact(contact_id=1)"
    env.reset(TASKS.task(Split.TEST, 0))
    env.step(Action("contacts_update_contact(contact_id=1, name='Ada Byron')"))
    saved = env.snapshot()
    first = info_of(env, call)
    env.restore(saved)
    assert info_of(env, call) == first


def test_what_is_of_another_form_stays_with_the_rest_of_the_record() -> None:
    odd: dict[str, Any] = {"clock": 7, "rows": [{"table": "a"}], "said": "x"}
    assert world_view(odd).rows == () and world_view(odd).clock == ""
    assert without_world(odd) == odd
    many = [{"table": "t", "id": n, "before": None, "after": {"a": n}} for n in range(25)]
    view = world_view({"rows": many})
    assert (len(view.rows), view.more, view.rows[0].sign) == (20, 5, "+")
