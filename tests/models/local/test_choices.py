"""Choices: a reply is one of them, and its recorded probabilities are exact."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from palaestra.core.agent import Agent
from palaestra.core.errors import ContextTooLong, InputError
from palaestra.core.message import assistant, system, user
from palaestra.core.model import CHOOSING, Finish, Prompt, Sampling
from palaestra.core.session import Session
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop import batch
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.models.local.choices import ChoiceTree
from palaestra.models.local.resident import ResidentModel
from palaestra.models.remote.remote_model import RemoteModel
from tests.core.small import Journal, run_episode, session
from tests.learning.made import learner_of, resident, tiny
from tests.models.plain import distributions

CHOICES = ("w1 w2", "w1 w3 w4", "w5", "w1", "w5 w5 w5")
PROMPT = [1, 3, 4, 5]
NETWORK = tiny()
RENDERER = resident(NETWORK).renderer


def asked(
    model: ResidentModel, *seeds: int, temperature: float = 1.0, choices=CHOICES, tokens=PROMPT
):
    sampling = Sampling(temperature, 1, choices=choices)

    async def together():
        prompts = [Prompt((user("?"),), tuple(tokens), sampling, seed) for seed in seeds]
        return await asyncio.gather(*(model.generate(prompt) for prompt in prompts))

    return asyncio.run(together())


def constrained(reply: list[int], temperature: float = 1.0, choices=CHOICES) -> list[float]:
    """Return each token's log-probability among those that continue a choice, by brute force."""
    spelt = [RENDERER.reply(choice) for choice in choices]
    found = []
    rows = distributions(NETWORK, PROMPT, reply, temperature=temperature)
    for place, (row, token) in enumerate(zip(rows, reply, strict=True)):
        open_ = {s[place] for s in spelt if s[:place] == reply[:place] and len(s) > place}
        found.append(float(row[token] - torch.logsumexp(row[sorted(open_)], 0)))
    return found


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(RENDERER.words[3:9]), min_size=1, max_size=3).map(" ".join),
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.7, 1.0]),
)
def test_a_reply_is_one_of_the_choices_with_its_constrained_logprobs(one, seed, temperature):
    choices = tuple(dict.fromkeys((*CHOICES, one)))
    (reply,) = asked(resident(NETWORK), seed, temperature=temperature, choices=choices)
    assert reply.text in choices and reply.finish is Finish.STOP
    assert list(reply.tokens) == RENDERER.reply(reply.text)
    wanted = constrained(list(reply.tokens), temperature or 1.0, choices)
    assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)


def test_frequencies_are_those_that_the_logprobs_state():
    spelt = {choice: constrained(RENDERER.reply(choice)) for choice in CHOICES}
    chances = {choice: math.exp(sum(lps)) for choice, lps in spelt.items()}
    assert sum(chances.values()) == pytest.approx(1)
    replies = asked(resident(NETWORK, slots=64), *range(300))
    counts = {choice: sum(r.text == choice for r in replies) for choice in CHOICES}
    statistic = sum((counts[c] - 300 * p) ** 2 / (300 * p) for c, p in chances.items())
    assert statistic < chi2.ppf(0.999, len(CHOICES) - 1)


def test_greedy_decoding_takes_the_best_allowed_token_at_each_position():
    (reply,) = asked(resident(NETWORK), 0, temperature=0.0)
    spelt, output = [RENDERER.reply(choice) for choice in CHOICES], list[int]()
    while not output or output[-1] not in RENDERER.end_tokens:
        row = distributions(NETWORK, PROMPT, [*output, 0])[-1]
        fitting = [
            s[len(output)] for s in spelt if s[: len(output)] == output and len(s) > len(output)
        ]
        output.append(max(set(fitting), key=lambda token: float(row[token])))
    assert list(reply.tokens) == output


def test_free_replies_of_the_same_step_are_as_they_are_alone():
    model, free = resident(NETWORK), Sampling(1.0, 8)

    async def beside(count: int):
        held = Sampling(1.0, 1, choices=CHOICES)
        prompts = [Prompt((user("?"),), tuple(PROMPT), free, 3)]
        prompts += [Prompt((user("?"),), (*PROMPT, n + 3), held, n) for n in range(count)]
        return (await asyncio.gather(*(model.generate(prompt) for prompt in prompts)))[0]

    alone, among = asyncio.run(beside(0)), asyncio.run(beside(5))
    assert alone.tokens == among.tokens and alone.policy == "policy"
    assert alone.logprobs == pytest.approx(among.logprobs, abs=1e-5)


def test_a_tree_allows_what_continues_some_choice():
    tree = ChoiceTree.of(CHOICES, RENDERER)
    for spelt in map(RENDERER.reply, CHOICES):
        for place, token in enumerate(spelt):
            assert token in tree.allowed(spelt[:place])
        assert tree.allowed(spelt) == []
    assert tree.longest == 4
    with pytest.raises(KeyError):
        tree.allowed([22])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"choices": ()}, "is empty; pass at least one"),
        ({"choices": ("a",), "stop": ("b",)}, "leave it out"),
    ],
)
def test_choices_that_cannot_be_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        Sampling(**wrong)


def test_a_choice_that_reads_back_otherwise_is_refused():
    with pytest.raises(InputError, match="'xyz' is changed by tokenization"):
        asked(resident(NETWORK), 0, choices=("w1", "xyz"))


def test_a_prompt_that_leaves_no_room_for_the_longest_choice_is_refused():
    assert asked(resident(NETWORK), 0, tokens=[3] * 124)[0].text in CHOICES
    with pytest.raises(ContextTooLong, match="a choice of 4"):
        asked(resident(NETWORK), 0, tokens=[3] * 125)


# ── in sessions ──────────────────────────────────────────────────────────────


class Shown(Agent):
    """An agent that generates freely or from choices, all in one conversation."""

    name = "told"

    def __init__(self, *held: bool) -> None:
        self.held = held

    async def run(self, session: Session) -> None:
        messages = [system("w1 w2"), user("w3")]
        for held in self.held:
            sampling = Sampling(1.0, 6, choices=("w1 w2", "w5") if held else None)
            reply = await session.generate(messages, sampling=sampling)
            messages += [assistant(reply.text), user("w4")]
            await session.act(reply.text)


def test_only_free_replies_are_learned_from_and_their_logprobs_are_the_learners():
    model = resident(NETWORK)
    episode = run_episode(Shown(True, False, True, False), model)
    assert [c.policy for c in episode.calls] == [f"policy{CHOOSING}", "policy"] * 2
    rows = rows_of(episode, "policy")
    trained = [t for row in rows for t, m in zip(row.tokens, row.mask, strict=True) if m]
    free = [call for call in episode.calls if call.policy == "policy"]
    assert trained == [token for call in free for token in call.completion]
    recomputed = learner_of(NETWORK).logprobs(batch.imitated_rows(rows, Aggregation.TOKEN_MEAN))
    recorded = [lp for call in free for lp in call.logprobs]
    assert [lp for row in recomputed for lp in row] == pytest.approx(recorded, abs=1e-4)


def test_held_replies_of_one_conversation_are_one_branch():
    episode = run_episode(Shown(True, True, True), resident(NETWORK))
    assert [call.parent for call in episode.calls] == [None, 0, 1]
    for before, after in pairwise(episode.calls):
        known = episode.graph.tokens(before.index)
        assert episode.graph.tokens(after.index)[: len(known)] == known


def test_training_on_held_replies_alone_is_refused():
    episode = run_episode(Shown(True, True), resident(NETWORK))
    with pytest.raises(InputError, match="was constrained to choices"):
        batch.trajectories([episode], Shaping(most_turns=3), "policy")


def test_an_interrupted_episode_with_choices_goes_on():
    journal, agent = Journal(), Shown(True, False, True)
    whole = run_episode(agent, resident(NETWORK), journal=journal)
    for cut in range(len(journal.events)):
        again = run_episode(agent, resident(NETWORK), past=journal.events[:cut])
        assert [c.completion for c in again.calls] == [c.completion for c in whole.calls]
        assert [c.policy for c in again.calls] == [c.policy for c in whole.calls]


def test_a_model_that_cannot_be_restricted_to_choices_reports_it():
    scene = session(Shown(True), RemoteModel("far", "http://localhost:1/v1"))
    assert not scene.can_choose()
    with pytest.raises(InputError, match=r"'openai:far.*' cannot be held to choices"):
        asyncio.run(scene.run())
