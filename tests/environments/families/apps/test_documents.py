"""Documents of office programs: the app, the goals over them, and the environment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

import palaestra as pa
from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps import office_formats as formats
from palaestra.environments.families.apps.composing import document_atoms
from palaestra.environments.families.apps.composing.composition import Composer, Composition
from palaestra.environments.families.apps.composing.gate import judged, rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Call, call
from palaestra.environments.families.apps.composing.wrong_solutions import wrong_solutions
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.population import START, populate, world_template
from palaestra.environments.families.apps.setting import documents
from palaestra.environments.families.apps.world import World
from tests.chosen import mostly_slow

for module in formats.PACKAGES:
    pytest.importorskip(module, reason="needs the extra palaestra[documents]")

DOCUMENT = "documents.document"
KINDS = {kind.name: kind for kind in document_atoms.KINDS}


@pytest.fixture
def office() -> Iterator[World]:
    with closing(world(0)) as opened:
        yield opened


def world(seed: int) -> World:
    suite = documents().suite
    return World(suite, world_template(suite, "small", seed), START)


def drawn(atom: type[Atom], where: World, seed: int) -> Composition | None:
    rng = random.Random(seed)
    task = Composer([atom()]).draw(where, 1, rng)
    return None if task is None or rejection(where, task, rng) else task


def solved(where: World, task: Composition, *calls: Call, answer: object = "") -> bool:
    with closing(where.fork()) as fork:
        for one in calls:
            assert fork.call(one.api, one.arguments, MAIN).ok
        return judged(fork, task.ways(where), answer).success


@pytest.mark.parametrize(
    ("name", "worlds"),
    [
        *(pytest.param(name, 30, marks=pytest.mark.slow) for name in KINDS),
        *((name, 1) for name in ("sum a column", "correct a cell", "pay an invoice")),
    ],
)
def test_goals_pass_the_gate_and_wrong_solutions_do_not(name: str, worlds: int) -> None:
    passed = tried = 0
    for seed in range(worlds):
        with closing(world(seed % 8)) as where:
            task = drawn(KINDS[name], where, seed)
            if task is None:
                continue
            passed += 1
            for wrong in wrong_solutions(where, task, random.Random(seed)):
                tried += 1
                with closing(where.fork()) as fork:
                    for one in wrong.calls:
                        fork.call(one.api, one.arguments, MAIN)
                    answer = "" if wrong.answer is None else wrong.answer
                    assert not judged(fork, task.ways(where), answer).success, wrong
    assert passed >= 0.8 * worlds
    assert tried >= 3 * worlds


def test_contents_count_and_not_how_they_came_about(office: World) -> None:
    task = drawn(document_atoms.CorrectCell, office, 3)
    assert task is not None
    [*_, edit] = task.reference(office)[0].calls
    given = dict(edit.arguments)
    typed = call(edit.api, **{**given, "value": f"{given['value']}.0"})
    other = call(edit.api, **{**given, "cell": "F20"})
    back = call(edit.api, **{**given, "cell": "F20", "value": ""})
    assert solved(office, task, edit)
    assert solved(office, task, typed)
    assert not solved(office, task, edit, other)
    assert solved(office, task, other, edit, back)


def test_verbs_refuse_with_a_status_and_leave_no_trace(office: World) -> None:
    rows = {row["kind"]: row for row in office.state.find(DOCUMENT, owner=MAIN)}
    sheet, letter, pdf = (rows[kind]["id"] for kind in ("sheet", "letter", "pdf"))
    before = office.key()
    for status, name, given in (
        (409, "read_sheet", {"document_id": letter}),
        (409, "read_letter", {"document_id": pdf}),
        (409, "read_pdf", {"document_id": sheet}),
        (409, "export_pdf", {"document_id": pdf, "name": "x.pdf"}),
        (409, "export_pdf", {"document_id": letter, "name": rows["letter"]["name"]}),
        (422, "export_pdf", {"document_id": letter, "name": ""}),
        (422, "set_cell", {"document_id": sheet, "cell": "ZZ9", "value": 1}),
        (422, "append_row", {"document_id": sheet, "values": [1] * 27}),
        (422, "replace_paragraph", {"document_id": letter, "number": 99, "text": "No"}),
        (422, "append_paragraph", {"document_id": letter, "text": "\x01"}),
        (422, "read_sheet", {"document_id": sheet, "first_row": 0}),
        (404, "read_letter", {"document_id": 999}),
    ):
        assert office.call(f"documents.{name}", given, MAIN).status == status, name
    assert office.call("documents.read_letter", {"document_id": letter}, MAIN + 1).status == 404
    assert office.key() == before


def test_bytes_are_shown_to_nobody(office: World) -> None:
    row = office.state.find(DOCUMENT, owner=MAIN)[0]
    shown = office.call("documents.show_document", {"document_id": row["id"]}, MAIN).body
    assert "content" not in shown
    assert shown["name"] == row["name"]
    env = Apps("documents-easy:all")
    env.reset(Apps.tasks("apps/documents-easy:all").task(Split.TEST, 0))
    letter = env._running().state.find(DOCUMENT, owner=MAIN, kind="letter")[0]["id"]
    step = env.step(Action(f"documents_append_paragraph(document_id={letter}, text='So long.')"))
    [changed] = step.info["rows"]
    assert changed["after"]["content"] == [*changed["before"]["content"], "So long."]


def test_equal_seeds_give_equal_bytes() -> None:
    suite = documents().suite
    assert populate(suite, "small", 5).database == populate(suite, "small", 5).database


def test_the_expert_solves_tasks_over_documents() -> None:
    done = pa.evaluate("apps/documents-medium", model="expert", n=4, progress=False, workers=0)
    assert done.success == 1


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "id",
    mostly_slow(["apps/documents-easy", "apps/documents-hard:discover"]),
)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))
