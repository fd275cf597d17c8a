"""The LTL agent: its actions satisfy the formula, for any model."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.constraints.ltl import FORBIDDEN, LTLAgent
from palaestra.agents.constraints.segments import PROMPTS, THINK, WHICH, SegmentsAgent
from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Capability, Observation, Signals, Transition
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.model import CHOOSING, Sampling
from palaestra.core.outcome import Limit, Outcome
from palaestra.core.temporal_logic import Moment, holds, parse, trace_of
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Journal, Stairs, renderer, run_episode

SIZE = renderer().tokenizer.get_vocab_size()
NETWORK = tiny_network(SIZE, layers=1, width=32, heads=4, context=640, seed=0)
POLICY = ResidentModel("policy", NETWORK, renderer(), context=640)


class Listed(Stairs):
    """Stairs that list what can be done."""

    capabilities = frozenset({Capability.ADMISSIBLE})


class Room(Listed):
    """An environment in which actions have no effect."""

    instructions = "Stay."

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        return Transition(Observation("still here")), Signals()

    async def admissible(self) -> list[str]:
        return ["a", "b", "go c"]


def roll_out(formula: str, model: ResidentModel | ScriptedModel, world: Stairs, **more) -> Episode:
    return run_episode(LTLAgent(formula=formula), model, world, **more)


def actions(episode: Episode) -> list[str]:
    return [step.action.text for step in episode.steps]


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_that_knows_nothing_never_does_what_is_forbidden(seed: int) -> None:
    episode = roll_out("G(!fall)", POLICY, Listed(), seed=seed)
    assert episode.outcome == Outcome.success() and actions(episode) == ["up"] * 3
    assert {call.policy for call in episode.calls} == {f"policy{CHOOSING}"}
    # one choice is no choice: nothing was left to chance
    assert all(lp == pytest.approx(0, abs=1e-6) for c in episode.calls for lp in c.logprobs)
    assert [call.parent for call in episode.calls] == [None, 0, 1]


def test_without_a_formula_replies_are_limited_to_listed_actions() -> None:
    found = [roll_out("true", POLICY, Room(), budget=Budget(turns=6), seed=s) for s in range(3)]
    assert {action for episode in found for action in actions(episode)} == {"a", "b", "go c"}


ATOMS = st.sampled_from(["a", "b", "'go c'", "/go .*/", "!a", "true"])
FORMULAS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{} ({})".format, st.sampled_from(["X", "N", "F", "G", "not"]), inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or", "U", "->"]), inner),
    ),
    max_leaves=3,
)


@settings(max_examples=25, deadline=None)
@given(FORMULAS, st.integers(1, 3), st.integers(0, 99))
def test_the_trace_satisfies_the_formula_whenever_the_world_allows_it(formula, turns, seed) -> None:
    offers = asyncio.run(Room().admissible())
    shorter = (trace for n in range(turns + 1) for trace in product(offers, repeat=n))
    possible = any(holds(parse(formula), [Moment("", a) for a in trace]) for trace in shorter)
    try:
        agent = LTLAgent(formula=formula)
    except InputError:
        assert not possible
        return
    episode = run_episode(agent, POLICY, Room(), Budget(turns=turns), seed=seed)
    assert holds(parse(formula), trace_of(episode)) or not possible


def test_what_must_be_done_is_done_at_the_latest_turn() -> None:
    for seed in range(4):
        episode = roll_out("F 'go c'", POLICY, Room(), budget=Budget(turns=3), seed=seed)
        assert "go c" in actions(episode) and len(actions(episode)) == 3
        assert episode.outcome == Outcome.truncated(Limit.TURNS)


def test_an_episode_of_another_agent_can_be_held_against_a_formula() -> None:
    good = run_episode(make_agent("direct"), ScriptedModel(["up"] * 3))
    bad = run_episode(make_agent("direct"), ScriptedModel(["up", "fall"]))
    rule = parse("G(!fall)")
    assert holds(rule, trace_of(good)) and not holds(rule, trace_of(bad))


# ── models that say what they like ───────────────────────────────────────────


def test_a_forbidden_action_is_asked_for_again() -> None:
    def reply(messages):
        return "up" if messages[-1].text.startswith(FORBIDDEN) else "fall"

    episode = roll_out("G(!fall)", ScriptedModel(reply), Listed())
    assert episode.outcome == Outcome.success()
    assert len(episode.calls) == 6
    assert episode.calls[1].messages[-1].text == f"{FORBIDDEN}Choose one of: up"
    shown = episode.graph.conversation(4)  # later prompts hold only the actions taken
    assert [m.text for m in shown if m.role == "assistant"] == ["up", "up", "fall"]


def test_a_stubborn_model_takes_the_first_allowed_action() -> None:
    episode = roll_out("G(!fall)", ScriptedModel(lambda messages: "fall"), Listed())
    assert episode.outcome == Outcome.success() and len(episode.calls) == 6


def test_without_listed_actions_the_formula_judges_the_reply() -> None:
    model = ScriptedModel(["fall", "up", "up", "up"])
    assert actions(roll_out("G(!fall)", model, Stairs())) == ["up", "up", "up"]
    stubborn = roll_out("G(!fall)", ScriptedModel(lambda messages: "fall"), Stairs())
    assert stubborn.outcome == Outcome.failure() and stubborn.steps == ()


def test_an_agent_that_may_do_nothing_gives_up() -> None:
    episode = roll_out("G(!up and !fall)", POLICY, Listed())
    assert episode.outcome == Outcome.failure()
    assert episode.steps == () == episode.calls


def test_observations_bind_what_is_done_next() -> None:
    episode = roll_out("G(seen 'step 2' -> fall) and G(fall -> seen 'step 2')", POLICY, Listed())
    assert actions(episode) == ["up", "up", "fall"]


def test_an_interrupted_episode_goes_on_by_the_same_choices() -> None:
    journal, agent, budget = Journal(), LTLAgent(formula="F b"), Budget(turns=4)
    whole = run_episode(agent, POLICY, Room(), budget, journal=journal, sampling=Sampling(1.0, 1))
    again = run_episode(agent, POLICY, Room(), budget, past=journal.events[:5])
    assert actions(again) == actions(whole)


# ── segments ─────────────────────────────────────────────────────────────────

REACT = "think and G(think -> X act) and G(act -> N think)"


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("G act", ["act"] * 3),
        (REACT, ["think", "act"] * 3),
        ("think and N G act", ["think", "act", "act", "act"]),
        ("G(think -> seen 'step 1')", ["act", "think", "act", "act"]),
    ],
)
def test_common_agents_are_formulas_over_their_segments(formula: str, wanted: list[str]) -> None:
    def reply(messages):
        asked = messages[-1].text
        if asked.endswith(WHICH):  # it thinks once at each step, where it may
            return "act" if asked == WHICH else "think"
        return "hm" if asked.endswith(PROMPTS[THINK]) else "up"

    episode = run_episode(SegmentsAgent(formula=formula), ScriptedModel(reply))
    kinds = [c.messages[-1].text for c in episode.calls]
    written = ["think" if k.endswith(PROMPTS[THINK]) else "act" for k in kinds if WHICH not in k]
    assert (written, episode.outcome) == (wanted, Outcome.success())


@pytest.mark.parametrize("seed", range(2))
def test_a_policy_that_knows_nothing_writes_the_segments_that_it_should(seed: int) -> None:
    agent = SegmentsAgent(formula=REACT)
    episode = run_episode(
        agent, POLICY, Room(), Budget(turns=3), seed=seed, sampling=Sampling(1.0, 4)
    )
    assert [call.policy for call in episode.calls] == ["policy", f"policy{CHOOSING}"] * 3
    assert set(actions(episode)) <= {"a", "b", "go c"} and len(actions(episode)) == 3


def test_thoughts_in_a_row_are_bounded() -> None:
    model = ScriptedModel(lambda m: "think" if m[-1].text.endswith(WHICH) else "up")
    episode = run_episode(SegmentsAgent(formula="true", thoughts=2), model)
    assert episode.outcome == Outcome.success() and len(episode.calls) == 3 * (2 + 2 + 1)
    stuck = run_episode(SegmentsAgent(formula="G think", thoughts=2), model)
    assert stuck.outcome == Outcome.failure() and len(stuck.calls) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("formula=G(", "cannot be read at its end"),
        ("formula=G a and F b", "contradicts itself"),
        ("again=-1", "greater than or equal to 0"),
    ],
)
def test_an_invalid_formula_is_reported_in_one_sentence(options: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_agent(f"ltl?{options}")
