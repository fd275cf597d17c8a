"""One whole step of reinforcement learning from public parts, read from top to bottom.

A tiny transformer with random weights learns to shout: the environment counts the capitals in each
of its replies. A training run consists of such steps; `pa.train` adds tests, checkpoints, resuming,
filters, critics and speed. Run it: python examples/one_rl_step.py
"""

import asyncio

import torch

import palaestra as pa
from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.episode import Key
from palaestra.core.model import Sampling
from palaestra.core.task import Split
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.credit.rule import groups, per_token
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop.batch import per_call, trained_rows, trajectories
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.trained_tokens import Tokens
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout

STEPS, TASKS, GROUP, TURNS = 30, 4, 8, 2


class Shouting(pa.Environment, free_text=True, typical_turns=TURNS):
    """Two turns; the reward of a reply is the share of capitals among its letters."""

    instructions = "Answer in capitals."

    def reset(self, task: pa.Task) -> pa.Observation:
        self.turn, self.words = 0, ["hello", "who is there", "good bye", "come in"]
        self.seed = task.seed
        return pa.Observation(self.words[self.seed % 4])

    def step(self, action: pa.Action) -> pa.Transition:
        self.turn += 1
        text = action.text
        reward = sum("A" <= c <= "Z" for c in text) / max(1, len(text))
        said = pa.Observation(self.words[(self.seed + self.turn) % 4])
        over = self.turn == TURNS
        return pa.Transition(said, reward, terminated=over, success=over and reward == 1)


def leave_one_out(batch: list[pa.Trajectory]) -> list[torch.Tensor]:
    """Return each rollout's return minus the mean return of the others of its task."""
    advantages: list[torch.Tensor] = [torch.empty(0)] * len(batch)
    for members in groups([trajectory.group for trajectory in batch]):
        returns = [batch[i].total for i in members]
        for i in members:
            others = (sum(returns) - batch[i].total) / (len(members) - 1)
            better = batch[i].total - others
            advantages[i] = per_token(batch[i], [better] * len(batch[i].turns))
    return advantages


def policy_gradient(tokens: Tokens) -> torch.Tensor:
    """Compute REINFORCE, weighted by the ratio of a token's probability now and at sampling."""
    return -(tokens.lp - tokens.lp_old).exp() * tokens.advantage


async def world(environment: str) -> LocalEnvironment:
    return LocalEnvironment(Shouting())


async def learn(steps: int = STEPS) -> list[float]:
    # 1. A policy that acts and learns with one copy of its weights.
    tokenizer = learn_vocabulary([Shouting.instructions, "hello who is there good bye come in"])
    network = tiny_network(
        tokenizer.get_vocab_size(), layers=2, width=64, heads=2, context=256, seed=0
    )
    model = ResidentModel("policy", network, ChatMLRenderer(tokenizer), context=256)
    learner = Learner(model, everything(network), Optimisation(learning_rate=3e-3))
    shaping = Shaping(most_turns=TURNS, weights={"outcome": 1.0, "environment": 1.0})
    tasks, rewards = Shouting.tasks("shouting"), []

    for step in range(steps):
        # 2. Roll out: a group of episodes for each task, all of them at once.
        chosen = tasks.take(Split.TRAIN, TASKS, start=step * TASKS)
        jobs = [Job(Key(f"rl/{step}", n, m), t) for n, t in enumerate(chosen) for m in range(GROUP)]
        sampling, budget = Sampling(max_tokens=4), Budget(turns=TURNS)
        rollout = Rollout(
            DirectAgent(), world, {"agent": model}, budget, sampling=sampling, seed=step
        )
        episodes = await rollout.run(jobs)
        # 3. Credit: the return of each episode, and from it one advantage per sampled token.
        batch = trajectories(episodes, shaping, model.name)
        credit = per_call(batch, leave_one_out(batch))
        # 4. Learn: rows of the sampled tokens, and one update of the weights.
        rows = [row for episode in episodes for row in rows_of(episode, model.name)]
        trained = trained_rows(rows, credit, Aggregation.TOKEN_MEAN)
        update = learner.update(trained, policy_gradient)
        rewards.append(sum(t.total for t in batch) / len(batch) / TURNS)
        print(
            f"step {step + 1:2}  capitals {100 * rewards[-1]:5.1f} %  entropy {update.entropy:.2f}"
        )
    return rewards


if __name__ == "__main__":
    asyncio.run(learn())
