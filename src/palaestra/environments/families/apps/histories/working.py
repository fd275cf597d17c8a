"""What the first person's company works on: tickets, articles, and the files of a program."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.state import Row

PROBLEMS = ("Update", "Repair", "Translate", "Rename", "Speed up", "Test", "Describe", "Remove")
PRIORITIES = ("low", "normal", "normal", "high")
COMMENTS = (
    "I can reproduce it.", "Does this still happen?", "It depends on the other ticket.",
    "I will look at it this week.", "A customer asked for it, too.", "Please add more details.",
)  # fmt: skip
LABELS = ("bug", "wish", "question", "urgent")
ARTICLES = (
    "Office rules", "Travel costs", "Visitors", "New colleagues", "Meeting rooms", "Emergencies",
    "Printing", "Parking", "Archive",
)  # fmt: skip


def tracker(scene: Scene) -> None:
    """Write projects and tickets with comments and labels."""
    rng, state, staff = scene.rng, scene.state, scene.staff()
    row: Row
    projects = [
        state.insert("tracker.project", {"name": f"Project {thing.title()}"})
        for thing in scene.things(3)
    ]
    for thing, opened in zip(scene.things(18), scene.past(18, 40), strict=True):
        reporter, assignee = rng.choice(staff), rng.choice(staff)
        row = {"owner": reporter.id, "project_id": rng.choice(projects), "opened": opened}
        row |= {"title": f"{rng.choice(PROBLEMS)} the {thing}"}
        row |= {"priority": rng.choice(PRIORITIES), "reporter": reporter.email}
        row |= {"assignee": assignee.email, "status": rng.choice(("open", "started", "closed"))}
        ticket = state.insert("tracker.ticket", row)
        for text in rng.sample(COMMENTS, rng.randint(0, 2)):
            author = rng.choice(staff)
            row = {"owner": author.id, "ticket_id": ticket, "author": author.email}
            state.insert("tracker.comment", row | {"text": text, "written": scene.past(1, 2)[0]})
        if rng.random() < 0.4:
            row = {"owner": reporter.id, "ticket_id": ticket, "name": rng.choice(LABELS)}
            state.insert("tracker.label", row)


def wiki(scene: Scene) -> None:
    """Write articles of facts; some have an earlier text."""
    rng, state, staff = scene.rng, scene.state, scene.staff()
    row: Row
    for title, edited in zip(ARTICLES, scene.past(len(ARTICLES), 60), strict=True):
        author, editor = rng.choice(staff), rng.choice(staff)
        facts = scene.facts(scene.things(2))
        row = {"owner": author.id, "title": title, "text": "\n".join(facts)}
        article = state.insert("wiki.article", row | {"editor": editor.email, "edited": edited})
        if rng.random() < 0.5:
            row = {"owner": editor.id, "article_id": article, "text": "\n".join(facts[:-1])}
            state.insert("wiki.revision", row | {"replaced": edited})


def repository(scene: Scene) -> None:
    """Write files, changes that are done, and of each file two open ones: one was approved."""
    rng, state = scene.rng, scene.state
    row: Row
    for thing, merged in zip(scene.things(8), scene.past(8, 60), strict=True):
        name = thing.replace(" ", "_")
        now, old, *others = rng.sample(range(100, 1000), 4)
        row = {"path": f"source/{name}.py", "text": _text(name, now), "merged": merged}
        file = state.insert("repository.file", row)
        _change(scene, file, name, old, "closed", ("reject",))
        _change(scene, file, name, now, "merged", ("approve",))
        verdicts = [("approve",), rng.choice(((), ("reject",), ("approve", "reject")))]
        rng.shuffle(verdicts)
        for value, given in zip(others, verdicts, strict=True):
            _change(scene, file, name, value, "open", given)


def _text(name: str, value: int) -> str:
    return f"def {name}():\n    return {value}\n"


def _change(
    scene: Scene, file: int, name: str, value: int, status: str, verdicts: Sequence[str]
) -> None:
    """Write a change of what a file's function returns, and its reviews in their order."""
    rng, state, staff = scene.rng, scene.state, scene.staff()
    row: Row
    author, times = rng.choice(staff), scene.past(1 + len(verdicts), 20)
    row = {"owner": author.id, "title": f"{name} returns {value}", "author": author.email}
    change = state.insert("repository.change", row | {"status": status, "proposed": times[0]})
    row = {"owner": author.id, "change_id": change, "file_id": file}
    state.insert("repository.edit", row | {"text": _text(name, value)})
    for verdict, written in zip(verdicts, times[1:], strict=True):
        reviewer = rng.choice([person for person in staff if person is not author])
        row = {"owner": reviewer.id, "change_id": change, "reviewer": reviewer.email}
        comment = "Fine." if verdict == "approve" else "Please say why."
        row |= {"verdict": verdict, "comment": comment}
        state.insert("repository.review", row | {"written": written})
