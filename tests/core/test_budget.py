"""Budgets of tokens read and sampled, and how long a prompt would be."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.direct import DirectAgent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.message import assistant, user
from palaestra.core.outcome import Limit, Outcome
from palaestra.core.session import Session
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Journal, Sampled, Stairs, run_episode, session


@given(st.integers(1, 400))
@settings(max_examples=25, deadline=None)
def test_no_episode_reads_and_samples_more_than_its_budget(tokens: int) -> None:
    model = ScriptedModel(lambda _: "up", renderer=Sampled([]).renderer)
    episode = run_episode(DirectAgent(), model, Stairs(9), Budget(total_tokens=tokens))
    assert episode.usage.prompt_tokens + episode.usage.sampled_tokens <= tokens
    assert episode.outcome in (Outcome.success(), Outcome.truncated(Limit.TOKENS))


def test_a_budget_of_all_tokens_ends_where_reading_has_spent_it() -> None:
    free = run_episode(DirectAgent(), ScriptedModel(["up"] * 3, renderer=Sampled([]).renderer))
    spent = free.usage.prompt_tokens + free.usage.sampled_tokens  # at which nothing more is done
    for tokens, solved in ((spent + 1, True), (spent, False)):
        journal = Journal()
        model = ScriptedModel(["up"] * 3, renderer=Sampled([]).renderer)
        episode = run_episode(
            DirectAgent(), model, budget=Budget(total_tokens=tokens), journal=journal
        )
        assert episode.outcome.solved is solved
        again = run_episode(
            DirectAgent(), model, budget=Budget(total_tokens=tokens), past=journal.events[:2]
        )
        assert (again.outcome, again.calls) == (episode.outcome, episode.calls)


class Measuring(Agent):
    """Compares each prompt with the length that it was given."""

    name = "measuring"

    async def run(self, session: Session) -> None:
        talk = [user("go up the stairs")]
        self.shown: list[int] = []
        for _ in range(3):
            self.shown.append(session.prompt_length(talk))
            reply = await session.generate(talk)
            talk += [assistant(reply.text), user("You are on step 1 of 3.")]


def test_the_length_of_a_prompt_is_known_to_the_token_before_it_is_sent() -> None:
    agent = Measuring()
    model = Sampled([[70, 71, 1], [72], [73, 74, 75]])  # also replies that nothing ended
    run_episode(agent, model)
    assert agent.shown == [len(prompt) for prompt in model.prompts]


def test_the_prompt_length_without_tokens_is_a_quarter_of_the_characters() -> None:
    agent = Measuring()
    run_episode(agent, ScriptedModel(lambda _: "up"))
    assert agent.shown[0] == len("go up the stairs") // 4


def test_a_session_knows_the_first_recorded_call_of_its_episode() -> None:
    journal = Journal()
    episode = run_episode(DirectAgent(), ScriptedModel(["up"] * 3), journal=journal)
    assert session(DirectAgent(), past=journal.events[:2]).first_recorded_call == episode.calls[0]
    assert session(DirectAgent()).first_recorded_call is None
