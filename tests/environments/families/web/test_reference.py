from __future__ import annotations

import pytest

from palaestra.core.task import Split, TaskSet
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.resuming import rest_of
from palaestra.environments.families.apps.drawing import drawn
from palaestra.environments.families.apps.setting import SETTINGS
from palaestra.environments.families.web.app_sites import START, AppSites
from palaestra.environments.families.web.pages.look import LANGUAGES
from palaestra.environments.families.web.reference import Walk


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["", "life", "office", "new"])
def test_a_reference_in_gestures_solves_its_task_wherever_it_begins(setting: str) -> None:
    kinds = set()
    for task in TaskSet("web/easy").take(Split.TRAIN, 15):
        new = setting == "new"
        at = SETTINGS[setting]() if setting and not new else None
        made = drawn("easy", "new" if new else "", task.seed, at)
        world = made.open()
        found = rest_of(world, made.task, made.ways)
        assert found is not None
        calls, answer = found
        sites = AppSites.of(world, task.seed, LANGUAGES)
        host = START if task.seed % 2 else next(iter(sites.by_host))
        walk = Walk(sites, f"http://{host}/")
        walk.make(calls)
        assert judged(world, made.ways, answer or "").success, made.task.instruction
        kinds |= {gesture.kind for gesture in walk.gestures}
        world.close()
    assert {"click", "type"} <= kinds
