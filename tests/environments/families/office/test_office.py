"""Office tasks: the contract, the verdict, twins, the audit of a model that plays colleagues."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import closing

import pytest

import palaestra as pa
from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import Seats
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Key
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.outcome import Owner, Status
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import judged, rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal, Slots
from palaestra.environments.families.apps.composing.right_solutions import right_solutions
from palaestra.environments.families.apps.composing.verifier import Judge, run
from palaestra.environments.families.apps.composing.wrong_solutions import wrong_solutions
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.office.colleagues_app import FACT, OPINION
from palaestra.environments.families.office.environment import (
    AGENT,
    ASK_TOOL,
    COLLEAGUE,
    Office,
)
from palaestra.environments.families.office.permission_goals import Confided
from palaestra.environments.families.office.tasks import office, permissions
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.chosen import mostly_slow

KINDS = {atom.name: type(atom) for atom in (*office().atoms, *permissions())}


def begun(name: str, number: int) -> Office:
    env = Office(name)
    env.reset(Office.tasks(f"office/{name}").task(Split.TEST, number))
    return env


def goal_of(kind: str, fits: Callable[[Slots], bool] = lambda slots: True) -> tuple[World, Goal]:
    """Return a goal of a kind, and a world with all that it needs."""
    every = [atom for atom in (*office().atoms, *permissions()) if atom.name == kind]
    for seed in range(60):
        template, rng = world_template(office().suite, "small", 4 * (seed % 8)), random.Random(seed)
        atom: Atom = rng.choice(every)
        with closing(World(office().suite, template, START)) as untouched:
            slots = atom.draw(untouched, rng)
        if slots is not None and fits(slots):
            goal = Goal(atom, slots)
            planted = Composition((goal,)).planted(template)
            return World(office().suite, planted, START, (), MAIN), goal
    raise AssertionError(f"no {kind}")


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "id",
    mostly_slow(
        ["easy", "medium:colleagues", "permission", "permission:colleagues", "hard:code"],
        "easy",
        "permission:colleagues",
    ),
)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"office/{id}"))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_goal_passes_the_gate_and_no_planted_solution_passes_it(kind: str) -> None:
    world, goal = goal_of(kind)
    task, rng = Composition((goal,)), random.Random(kind)
    with closing(world):
        assert rejection(world, task, rng) is None
        ways = task.ways(world)
        for solution, right in (
            *((one, False) for one in wrong_solutions(world, task, rng)),
            *((one, True) for one in right_solutions(world, task, rng)),
        ):
            with closing(world.fork()) as fork:
                for made in solution.calls:
                    fork.call(made.api, made.arguments, MAIN)
                answer = "" if solution.answer is None else solution.answer
                assert judged(fork, ways, answer).success is right, solution


def test_any_colleague_may_approve_where_it_does_not_matter_who() -> None:
    world, goal = goal_of("get a change approved by anybody")
    with closing(world):
        ways = Composition((goal,)).ways(world)
        assert len(ways) == 3  # as many as there are colleagues
        for slots in goal.atom.alternatives(goal.slots, world):
            with closing(world.fork()) as fork:
                run(goal.atom.steps(slots), fork, MAIN)
                assert judged(fork, ways, "").success
                assert not judged(fork, ways[:1], "").success


def test_when_a_change_is_merged_does_not_matter() -> None:
    world, goal = goal_of("get a change approved")
    with closing(world):
        ways = Composition((goal,)).ways(world)
        world.advance(3_600)
        run(goal.atom.steps(goal.slots), world, MAIN)
        assert judged(world, ways, "").success


def test_experts_solve_tasks_with_programs_and_with_a_player() -> None:
    for id, agent in (
        ("office/medium", "direct"),
        ("office/permission:discover", "direct"),
        ("office/medium:colleagues", "players"),
    ):
        done = pa.evaluate(id, agent=agent, model="expert", n=4, progress=False, workers=0)
        assert done.success == 1 and done.excluded == 0, id


def test_a_player_who_does_what_the_program_does_leaves_the_same_world() -> None:
    for number in range(4):
        left = []
        for form in ("easy:all", "easy:colleagues"):
            env = begun(form, number)
            for action in env.oracle():
                step = env.step(action)
            assert step.success
            state = env._running().state
            replies = {row["reply"] for row in state.rows("colleagues.exchange")}
            left.append((Judge(state.columns).canonical(state.changes()), replies))
            env.close()
        assert left[0] == left[1]


def test_half_of_the_permission_tasks_pass_for_those_who_always_refuse() -> None:
    texts, passed = [], 0
    for number in range(8):
        env = begun("permission", number)
        texts.append((env.instruction, env._drawn.needed))
        passed += env.step(Action("finish(answer='refused')")).success
        env.reset(Office.tasks("office/permission").task(Split.TEST, number))
        assert not env.step(Action("finish()")).success
        env.close()
    assert passed == 4 and texts[::2] == texts[1::2]


def test_a_reader_of_the_apps_cannot_find_what_is_in_the_heads_of_colleagues() -> None:
    suite = office().suite
    hidden = {"colleagues.fact", "colleagues.opinion", "colleagues.exchange"}
    for api in suite.apis.values():
        assert not any(api.full_name.endswith(f"_{name.partition('.')[2]}s") for name in hidden)
    assert {api.name for api in suite.apps["colleagues"].apis.values()} == {
        "ask", "list_colleagues", "search_colleagues", "show_colleague", "login"
    }  # fmt: skip


def test_a_step_shows_nothing_of_a_colleagues_part() -> None:
    env = begun("permission", 0)
    for action in env.oracle():
        rows = env.step(action).info.get("rows", [])
        assert not any(row["table"].startswith("colleagues.") for row in rows)


def test_tasks_with_parameters_and_unknown_ids_are_refused() -> None:
    env = Office("easy")
    with pytest.raises(InputError, match="no parameters"):
        env.reset(Task("x", "office/easy", 0, parameters={"level": 3}))
    with pytest.raises(InputError, match="no task yet"):
        env.acting()
    env.close()
    with pytest.raises(InputError, match="no Office environment"):
        pa.evaluate("office/expert", model="expert", n=1, progress=False, workers=0)


# ── a model as the colleague ─────────────────────────────────────────────────


def asked(message: str, kind: str = "", number: int = 0) -> Office:
    """Return an episode in which the first colleague was asked something."""
    env = begun("easy:colleagues", number)
    first = env._running().state.rows("colleagues.colleague")[0]
    step = env.step(Action(f"{ASK_TOOL}(email={first['email']!r}, message={message!r})"))
    assert step.valid and env.acting() == (COLLEAGUE,)
    assert env.observe(AGENT).text == "It is not your turn."
    return env


def known(env: Office, of: int = 0) -> tuple[str, str]:
    """Return the label and the value of a fact that a colleague knows."""
    state = env._running().state
    owner = state.rows("colleagues.colleague")[of]["owner"]
    fact = next(one for one in state.find(FACT, owner=owner) if one["value"])
    return f"{fact['what']} for the {fact['topic']}", fact["value"]


def faulty(env: Office, *moves: str) -> str:
    """Return the fault of the colleague in these moves."""
    *before, last = moves
    for move in before:
        assert env.step(Action(move)).valid
    with pytest.raises(EnvironmentFault) as found:
        env.step(Action(last))
    assert found.value.kind == "user"
    return str(found.value)


def test_a_colleague_sees_their_part_and_neither_the_task_nor_the_others() -> None:
    env = asked("How are you?")
    seen = env.observe(COLLEAGUE).text
    assert known(env)[1] in seen and known(env, of=1)[1] not in seen
    assert env.instruction not in seen
    assert not env.step(Action("supervisor_list_credentials()")).valid


def test_a_fact_that_is_invented_or_not_asked_for_is_the_environments_fault() -> None:
    env = asked("How are you?")
    assert "invented '99913'" in faulty(env, "Well, thanks. The code is 99913.")
    env = asked("How are you?")
    assert "before it was due" in faulty(env, f"I know it: {known(env)[1]}.")
    env = asked("How are you?")
    assert "only another one knows" in faulty(env, f"It is {known(env, of=1)[1]}.")


def test_telling_somebody_who_is_not_entitled_is_the_environments_fault() -> None:
    for number in range(40):
        env = begun("permission:colleagues", number)
        goal = env.goals[0]
        if isinstance(goal.atom, Confided) and not goal.slots["permitted"]:
            break
    plan = env.oracle()
    for action in plan[:2]:
        env.step(action)
    assert env.acting() == (COLLEAGUE,)
    assert "not entitled" in faulty(env, f"It is {goal.slots['fact'].value}.")


def test_a_yes_or_a_no_against_their_own_opinion_is_the_environments_fault() -> None:
    for agrees, said, fault in (
        (False, "Yes, go ahead.", "agreed to what they do not want"),
        (True, "No, do not do that.", "declined what they want"),
    ):
        env = begun("easy:colleagues", 0)
        state = env._running().state
        first = state.rows("colleagues.colleague")[0]
        row = {"owner": first["owner"], "subject": "the red door", "agrees": agrees}
        state.insert(OPINION, row)
        text = "May I paint the red door?"
        env.step(Action(f"{ASK_TOOL}(email={first['email']!r}, message={text!r})"))
        assert fault in faulty(env, said)


def test_a_change_that_nobody_asked_for_is_the_environments_fault() -> None:
    env = asked("How are you?")
    assert "nobody asked for" in faulty(
        env,
        'tracker_search_tickets(query="a")',
        'tracker_update_ticket(ticket_id=1, priority="low")',
    )


def approval() -> tuple[Office, Action]:
    """Return an episode in which a colleague is asked to approve a change, and what they do."""
    for number in range(40):
        env = begun("easy:colleagues", number)
        if env.goals[0].atom.name == "get a change approved":
            for action in env.oracle()[:2]:
                env.step(action)
            return env, env.oracle()[0]
    raise AssertionError


def test_a_change_that_is_rejected_or_never_reviewed_is_the_environments_fault() -> None:
    env, act = approval()
    assert act.call is not None
    id = act.call.arguments["change_id"]
    rejected = f'repository_review_change(change_id={id}, verdict="reject")'
    assert "nobody asked for" in faulty(env, rejected)
    env, _ = approval()
    assert "never did what they were asked for" in faulty(env, "Done.", "finish()")
    env, _ = approval()
    assert env.step(Action(f'{act.text[:-1]}, comment="Fine with me.")')).valid
    assert env.step(Action("It is approved; that took me a while.")).valid
    *_, step = (env.step(action) for action in env.oracle())
    assert step.success and step.rewards == {AGENT: 1.0, COLLEAGUE: 1.0}


def test_a_fact_that_is_held_back_until_the_end_is_the_environments_fault() -> None:
    env = asked("How are you?")
    label, value = known(env)
    question = f"What is the {label}?"
    env = asked(question)
    assert "never told" in faulty(env, "I will look it up.", "finish()")
    env = asked(question)
    assert env.step(Action(f"I think it was {value}, but let me see. Yes.")).valid
    assert env.step(Action("finish()")).terminated


def test_a_snapshot_keeps_whose_turn_it_is_and_what_they_see() -> None:
    env = asked("How are you?")
    saved, key, seen = env.snapshot(), env.state_key(), env.observe(COLLEAGUE).text
    env.step(Action("Fine, thank you."))
    assert env.acting() == (AGENT,) and env.state_key() != key
    env.restore(saved)
    assert env.acting() == (COLLEAGUE,) and env.state_key() == key
    assert env.observe(COLLEAGUE).text == seen


def test_an_episode_with_a_lying_colleague_has_no_valid_result() -> None:
    env = begun("easy:colleagues", 0)
    email = env._running().state.rows("colleagues.colleague")[0]["email"]
    text = f"{ASK_TOOL}(email={email!r}, message='How are you?')"
    session = Session(
        Key("office", 0, 0),
        Office.tasks("office/easy:colleagues").task(Split.TEST, 0),
        LocalEnvironment(Office("easy:colleagues")),
        Seats({AGENT: DirectAgent(), COLLEAGUE: DirectAgent()}),
        {
            AGENT: ScriptedModel(lambda messages: text),
            COLLEAGUE: ScriptedModel(lambda messages: "My code is 99913."),
        },
        budget=Budget(turns=6),
    )
    outcome = asyncio.run(session.run()).outcome
    assert (outcome.status, outcome.kind, outcome.owner) == (
        Status.ERROR,
        "user",
        Owner.ENVIRONMENT,
    )
    assert not outcome.scored and "99913" in outcome.detail
