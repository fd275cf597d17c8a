"""Learned from recorded episodes: scorers that lead a search, and a planner that plans better."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from palaestra.agents.meta_plan import PLAN
from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key, derive_seed
from palaestra.core.errors import InputError
from palaestra.core.message import assistant, system, user
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.learning.critics.recorded_values import choices, states
from palaestra.learning.critics.step_q import log_likelihoods
from palaestra.models import registry
from palaestra.models.local import scoring
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.tiny import tiny_network
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.runtime.progress import Reporter
from palaestra.training.from_records import Kind, Learned, Lesson, learn
from palaestra.training.policy_building import save_tokenizer
from tests.agents.fork import Fork, Wavering
from tests.core.small import Stairs, renderer

TASK = Task("train/0", "fork", 0)
SEARCH = "beam?width=1&samples=6&depth=2&scorer=learned"
PLANS = ("1. go up", "1. fall")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that has learned nothing."""
    folder = tmp_path_factory.mktemp("base")
    vocabulary = renderer().tokenizer.get_vocab_size()
    network = tiny_network(vocabulary, layers=1, width=32, heads=2, context=256, seed=0)
    write_network(network, folder)
    save_tokenizer(renderer().tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    """Twelve groups of four rollouts at the fork."""
    return [
        run_episode("direct", group, member, {"agent": Wavering(0.2, tokens=True)})
        for group in range(12)
        for member in range(4)
    ]


def run_episode(agent: str, group: int, member: int, models: dict[str, Model]) -> Episode:
    session = Session(
        Key("train", group, member), TASK, LocalEnvironment(Fork()), make_agent(agent), models,
        budget=Budget(turns=8), seed=derive_seed(group, member),
    )  # fmt: skip
    return asyncio.run(session.run())


def learned(kind: Kind, episodes: list[Episode], base: Path, out: Path, **more: object) -> Learned:
    lesson = Lesson(kind, updates=60, batch=12, learning_rate=3e-3, **more)  # type: ignore[arg-type]
    return learn(episodes, lesson, out, Reporter(Console(file=io.StringIO())), str(base))


def solved(scorer: Model | None) -> float:
    """The share of eight tasks that a search with it solves."""
    models: dict[str, Model] = {"agent": Wavering(0.5, tokens=True)}
    found = []
    for group in range(8):
        named = models if scorer is None else {**models, "scorer": scorer}
        agent = SEARCH if scorer is not None else SEARCH.replace("learned", "reward")
        found.append(run_episode(agent, 100 + group, 0, named))
    for episode in found if scorer is not None else ():
        asked = [call for call in episode.calls if call.role == "scorer"]
        assert asked and {call.policy for call in asked} == {scorer.name}  # type: ignore[union-attr]
        assert all(-1 <= float(call.reply.text) <= 1 for call in asked)
        assert all(call.computed_tokens > 0 and not call.completion for call in asked)
        assert episode.usage.prompt_tokens >= sum(call.computed_tokens for call in asked)
    return sum(episode.outcome.solved for episode in found) / len(found)


# ── what is read off episodes ────────────────────────────────────────────────


def test_a_state_is_worth_the_mean_of_what_came_of_it(episodes: list[Episode]) -> None:
    found = states(episodes)
    roots = [s for s in found if len(s.tokens) == min(len(s.tokens) for s in found)]
    rate = sum(e.outcome.solved for e in episodes) / len(episodes)
    assert len(roots) == 12 and sum(s.value for s in roots) / 12 == pytest.approx(rate)
    assert {s.value for s in found if "alley" in renderer().text(s.tokens)} == {0.0}


def test_the_better_of_two_replies_to_one_prompt_is_preferred(episodes: list[Episode]) -> None:
    found = choices(episodes)
    assert found and all(choice.gap > 0 for choice in found)
    pairs = {
        tuple(map(renderer().text, (c.preference.chosen, c.preference.rejected))) for c in found
    }
    assert pairs == {(" right\n", "left")}
    assert not choices(episodes, gap=1.0)


# ── scorers ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["value", "q"])
def test_a_learned_scorer_leads_a_search_where_rewards_mislead(
    kind: Kind, episodes: list[Episode], base: Path, tmp_path: Path
) -> None:
    about = learned(kind, episodes, base, tmp_path / "scorer", held_out=0.4)
    assert about.last_loss < about.first_loss and about.held > 0
    assert about.held_score is not None and (kind == "value" or about.held_score > 0.5)
    scorer = registry.load_model(
        str(tmp_path / "scorer"), make_agent("direct"), slots=2, context=256, progress=print
    )
    assert isinstance(scorer, scoring.ScoringModel)
    talk = [system("Reply with one word: left, right."), user("a fork")]
    on = [*talk, assistant(" right\n"), user("a fork")]
    astray = [*talk, assistant("left"), user("an alley")]
    assert scorer.score(on)[0] > scorer.score(astray)[0]
    assert solved(None) == 0.0  # what pays at once leads astray
    assert solved(scorer) >= 0.75  # an action without a proposal cannot be chosen


def test_a_scorer_says_what_the_trained_model_replied(
    episodes: list[Episode], base: Path, tmp_path: Path
) -> None:
    learned("q", episodes, base, tmp_path / "q")
    scorer = scoring.ScoringModel("q", tmp_path / "q")
    talk = [system("s"), user("a fork"), assistant("left"), user("an alley")]
    history, reply = renderer().start(talk[:2]), renderer().reply("left")
    networks = [
        read_network(tmp_path / "q" / part, torch.float32) for part in ("model", "reference")
    ]
    with torch.no_grad():
        ours, theirs = (float(log_likelihoods(n, [(history, reply)])) for n in networks)
    worth = 0.1 * (ours - theirs)
    assert scorer.score(talk) == (
        pytest.approx(worth / (1 + abs(worth)), abs=1e-5),
        len(history + reply),
    )
    with pytest.raises(InputError, match="the conversation has none"):
        scorer.score(talk[:2])


# ── plans ────────────────────────────────────────────────────────────────────


class Planning(Model):
    """Plans this or that at random."""

    name = "planning"
    renderer = renderer()

    async def generate(self, prompt: Prompt) -> Generation:
        return given_generation(PLANS[prompt.seed % 2], prompt, self)


class Obeying(Model):
    """Does what the plan says."""

    name = "obeying"

    async def generate(self, prompt: Prompt) -> Generation:
        return given_generation(
            "up" if PLANS[0] in prompt.messages[0].text else "fall", prompt, self
        )


def test_a_planner_learns_by_preference_which_plans_succeed(base: Path, tmp_path: Path) -> None:
    recorded = []
    for group in range(6):
        for member in range(4):
            session = Session(
                Key("eval", group, member), TASK, Stairs(), make_agent("meta"),
                {"agent": Obeying(), "planner": Planning()}, seed=derive_seed(group, member),
            )  # fmt: skip
            recorded.append(asyncio.run(session.run()))
    assert 0 < sum(episode.outcome.solved for episode in recorded) < len(recorded)
    about = learned("policy", recorded, base, tmp_path / "planner", role="planner")
    assert about.last_loss < about.first_loss
    asked = renderer().start([system(Stairs.instructions), user(PLAN)])
    pairs = [(asked, renderer().reply(plan)) for plan in PLANS]
    with torch.no_grad():
        before, after = (
            log_likelihoods(read_network(folder, torch.float32), pairs).diff().item()
            for folder in (base, tmp_path / "planner")
        )
    assert after < before - 1  # the plan that fails has become less probable, by a factor e or more
    planner = registry.load_model(
        str(tmp_path / "planner"), make_agent("meta"), slots=2, context=256, progress=print
    )
    session = Session(
        Key("test", 0), TASK, Stairs(), make_agent("meta"),
        {"agent": Obeying(), "planner": planner}, budget=Budget(turns=3),
    )  # fmt: skip
    assert asyncio.run(session.run()).calls[0].policy == str(tmp_path / "planner")


# ── what cannot be ───────────────────────────────────────────────────────────


def test_what_cannot_be_learned_from_is_reported_in_a_sentence(
    episodes: list[Episode], base: Path, tmp_path: Path
) -> None:
    same = [episode for episode in episodes if episode.outcome.solved]
    with pytest.raises(InputError, match="has no two replies to one prompt"):
        learned("q", same, base, tmp_path / "a")
    with pytest.raises(InputError, match="no role in these episodes 'critic'"):
        learn(episodes, Lesson("q", role="critic"), tmp_path / "a", Reporter())
    wordless = [run_episode("direct", 0, m, {"agent": Wavering(0.5)}) for m in range(4)]
    with pytest.raises(InputError, match="not recorded in tokens"):
        learned("value", wordless, base, tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "it").touch()
    with pytest.raises(InputError, match="is not empty"):
        learned("value", episodes, base, tmp_path / "full")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "scorer.json").write_text(json.dumps({"kind": "oracle"}))
    with pytest.raises(InputError, match="not a readable scorer"):
        scoring.ScoringModel("bad", tmp_path / "bad")


def test_a_search_without_its_scorer_explains_how_to_get_one() -> None:
    with pytest.raises(InputError, match="palaestra agents learn value RUN"):
        run_episode(SEARCH, 0, 0, {"agent": Wavering()})
    with pytest.raises(InputError, match="which is not a number"):
        run_episode(SEARCH, 0, 0, {"agent": Wavering(), "scorer": Wavering()})


@pytest.mark.parametrize(
    "given", [["--updates", "0"], ["--beta", "0"], ["--held-out", "1"], ["--learning-rate", "-1"]]
)
def test_numbers_that_cannot_be_are_refused(given: list[str], capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["agents", "learn", "q", "nowhere", "--out", "x", *given]) == 2
    assert given[0] in capsys.readouterr().err
