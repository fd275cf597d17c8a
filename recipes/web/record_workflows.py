"""Records workflows on many sites, as demonstrations in the layout of WebLINX.

    PYTHONPATH=. python recipes/web/record_workflows.py FOLDER --workflows 24

A site is a page of MiniWoB++, and a workflow one of its tasks, solved by its reference with real
clicks in the browser. The recipe `recorded_workflows.toml` imitates those of `train`. `valid` are
other workflows on the same sites; `test_iid` are workflows on sites that the training split lacks.

Source of the experiment: Shen et al. 2024 (ScribeAgent), which fine-tunes on workflows that people
recorded on 250 domains.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.task import Split
from palaestra.environments.families.miniwob import pages
from palaestra.environments.families.miniwob.environment import MiniWob
from palaestra.store.exchange.weblinx_export import (
    ShownEpisode,
    ShownTurn,
    demonstration_name,
    write_weblinx,
)

TRAINED = (
    "click-button", "click-button-sequence", "click-checkboxes", "click-checkboxes-transfer",
    "click-dialog-2", "click-link", "click-option", "click-tab", "click-widget", "enter-text",
    "enter-text-dynamic", "focus-text",
)  # fmt: skip
HELD_OUT = (
    "click-dialog",
    "click-test-2",
    "enter-text-2",
    "focus-text-2",
    "unicode-test",
)
MOST_TURNS = 8  # longer workflows are left out


def recorded(sites: Sequence[str], split: Split, name: str, count: int) -> Iterator[ShownEpisode]:
    """Yield workflows on sites, each solved by its reference.

    Args:
        sites: pages of MiniWoB++.
        split: of their tasks.
        name: of the split of demonstrations.
        count: of tasks of each site.
    """
    for site in sites:
        world = MiniWob(site)
        for task in MiniWob.tasks(f"miniwob/{site}").take(split, count):
            world.reset(task)
            goal, turns, solved = world.caption(), list[ShownTurn](), False
            while (plan := world.oracle()) and len(turns) < MOST_TURNS:
                turns.append(ShownTurn(gesture_in(plan[0]), world.elements()))
                solved = world.step(plan[0]).success
            if solved:
                key = demonstration_name(f"{site} {task.id}")
                url = f"http://{site}.{pages.HOST}/"
                yield ShownEpisode(key, goal, url, pages.SIZE, name, turns)
        world.close()


def main(folder: Path, workflows: int) -> None:
    held_out = max(1, workflows // 2)
    episodes = [
        *recorded(TRAINED, Split.TRAIN, "train", workflows),
        *recorded(TRAINED, Split.VALIDATION, "valid", max(1, workflows // 4)),
        *recorded(HELD_OUT, Split.TEST, "test_iid", held_out),
    ]
    write_weblinx(folder, episodes)
    for name in ("train", "valid", "test_iid"):
        some = [one for one in episodes if one.split == name]
        sites, turns = len({one.url for one in some}), sum(len(one.turns) for one in some)
        print(f"{name}: {len(some)} workflows on {sites} sites, {turns} turns")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workflows", type=int, default=24, help="of each site")
    asked = parser.parse_args()
    main(asked.folder, asked.workflows)
