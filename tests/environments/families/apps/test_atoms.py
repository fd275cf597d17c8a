"""Kinds of goals: what each draws passes the gate, and wrong solutions do not."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from palaestra.environments.families.apps.composing.composition import Composer, Composition
from palaestra.environments.families.apps.composing.gate import judged, rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Call, call
from palaestra.environments.families.apps.composing.verifier import Wanted
from palaestra.environments.families.apps.composing.wrong_solutions import wrong_solutions
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.setting import Setting, brand, life, office
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.world import World

SETTINGS = {"life": life, "office": office, "brand": brand}
WORLDS = 16
TRIES = 20  # until there is a goal: most entities have no rows of the person, or few


def kinds(setting: Setting) -> dict[str, list[Atom]]:
    found: dict[str, list[Atom]] = {}
    for atom in setting.atoms:
        found.setdefault(atom.name, []).append(atom)
    return found


def cases() -> list[tuple[str, str]]:
    """Each kind of goal in the first setting that has it; those over any entity in both."""
    anywhere = {"add", "change", "delete", "count", "look up"}
    found = [("life", name) for name in kinds(life())]
    seen = {name for _, name in found} - anywhere
    found += [("office", name) for name in kinds(office()) if name not in seen]
    return found + [("brand", name) for name in kinds(brand())]


def draws(where: str, name: str, number: int) -> Iterator[tuple[World, Composition | None, str]]:
    """Yield worlds with a goal of that kind, and why the gate rejects it."""
    setting = SETTINGS[where]()
    atoms = kinds(setting)[name]
    for seed in range(number):
        world = World(setting.suite, world_template(setting.suite, "small", seed % WORLDS), START)
        rng = random.Random(f"{name} {seed}")
        tried = (Composer(atoms).draw(world, 1, rng) for _ in range(TRIES))
        task = next((found for found in tried if found is not None), None)
        yield world, task, "no draw" if task is None else rejection(world, task, rng) or ""
        world.close()


@pytest.mark.parametrize(("where", "name"), cases())
def test_goals_pass_the_gate(where: str, name: str) -> None:
    reasons = [reason for _, _, reason in draws(where, name, 3)]
    assert reasons.count("") >= 2, reasons


@pytest.mark.slow
@pytest.mark.parametrize(("where", "name"), cases())
def test_most_goals_pass_the_gate_and_wrong_solutions_of_them_do_not(where: str, name: str) -> None:
    passed = tried = accepted = 0
    for seed, (world, task, reason) in enumerate(draws(where, name, 100)):
        if task is None or reason:
            continue
        passed += 1
        if passed > 30:
            continue
        ways = task.ways(world)
        for wrong in wrong_solutions(world, task, random.Random(seed)):
            tried += 1
            accepted += success(world, ways, wrong.calls, wrong.answer)
    assert passed >= 80
    assert tried >= 20
    assert accepted <= 0.02 * tried


def success(world: World, ways: Sequence[Wanted], calls: Sequence[Call], answer: object) -> bool:
    """Whether calls and an answer are judged right."""
    fork = world.fork()
    for made in calls:
        fork.call(made.api, made.arguments, MAIN)
    found = judged(fork, list(ways), "" if answer is None else answer).success
    fork.close()
    return found


# ── other ways ───────────────────────────────────────────────────────────────


def passing(name: str, where: str = "life") -> tuple[World, Composition]:
    for world, task, reason in draws(where, name, 40):
        if task is not None and not reason:
            return world.fork(), task
    raise AssertionError(name)


def right(world: World, task: Composition, *calls: Call) -> bool:
    return success(world, task.ways(world), calls, None)


def one(world: World, table: str, **equal: object) -> Row:
    return world.state.find(table, **equal)[0]


def test_a_bill_is_split_by_one_call_or_by_several() -> None:
    world, task = passing("split a bill")
    slots = task.goals[0].slots
    names = (slots["other"], slots["name"])
    payers = [one(world, "contacts.contact", owner=MAIN, name=name)["email"] for name in names]
    given = {"payers": payers, "note": slots["note"]}
    assert right(world, task, call("payments.split_bill", total=slots["total"], **given))
    assert not right(world, task, call("payments.split_bill", total=slots["total"] + 3, **given))


def test_a_line_is_appended_by_writing_the_whole_file() -> None:
    world, task = passing("append to a file")
    slots = task.goals[0].slots
    file = one(world, "files.file", owner=MAIN, name=slots["file"])
    given = {"file_id": file["id"]}
    text = f"{file['text']}\n{slots['line']}"
    assert right(world, task, call("files.update_file", text=text, **given))
    assert not right(world, task, call("files.update_file", text=slots["line"], **given))


def test_a_mail_is_forwarded_if_its_body_arrives() -> None:
    world, task = passing("forward a mail")
    slots = task.goals[0].slots
    recipient = one(world, "contacts.contact", owner=MAIN, name=slots["name"])["email"]
    given = {"recipient": recipient, "subject": "For you"}
    assert right(world, task, call("mail.send_message", body=f"See: {slots['body']}", **given))
    assert not right(world, task, call("mail.send_message", body="See there.", **given))


def test_any_card_means_any_card_for_each_of_two_goals() -> None:
    setting = life()
    for seed in range(400):
        world = World(setting.suite, world_template(setting.suite, "small", seed % WORLDS), START)
        atoms = [atom for atom in setting.atoms if atom.name in ("book a hotel", "order a product")]
        task = Composer(atoms).draw(world, 2, random.Random(seed))
        if task is not None and not rejection(world, task, random.Random(seed)):
            variants, ways = task.variants(world), task.ways(world)
            if len(variants) == len(ways) == 4:
                break
    for variant in variants:
        assert success(world, ways, variant.reference(world)[0].calls, None)
    frozen = [row for row in world.state.rows("bank.card") if row["status"] == "frozen"]
    assert not frozen  # a frozen card is no alternative
