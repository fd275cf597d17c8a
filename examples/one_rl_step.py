"""One whole step of reinforcement learning from public parts, read from top to bottom.

A tiny transformer with random weights learns to shout: the world counts the capitals in each of
its replies. Nothing else happens in a training run; `pa.train` adds tests, checkpoints, resuming,
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
from palaestra.learning.batch import per_call, trained_rows, trajectories
from palaestra.learning.credit.rule import groups, per_token
from palaestra.learning.learner import Learner
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.tokens import Tokens
from palaestra.learning.masters import Optimisation
from palaestra.learning.rewards import Shaping
from palaestra.learning.rows import rows_of
from palaestra.learning.selection import everything
from palaestra.models.chatml import ChatMLRenderer
from palaestra.models.resident import ResidentModel
from palaestra.models.tiny import learn_vocabulary, tiny_network
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worlds import LocalWorld

STEPS, TASKS, GROUP, TURNS = 30, 4, 8, 2


class Shouting(pa.Environment):
    """Two things are said; each reply earns the share of capitals among its letters."""

    instructions = "Answer in capitals."
    free_text = True
    typical_turns = TURNS

    @classmethod
    def tasks(cls, environment: str) -> pa.TaskSet:
        return pa.TaskSet(environment)

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
    """Each rollout is as good as its return is above the mean of the others of its task."""
    advantages: list[torch.Tensor] = [torch.empty(0)] * len(batch)
    for members in groups([trajectory.group for trajectory in batch]):
        returns = [batch[i].total for i in members]
        for i in members:
            others = (sum(returns) - batch[i].total) / (len(members) - 1)
            better = batch[i].total - others
            advantages[i] = per_token(batch[i], [better] * len(batch[i].turns))
    return advantages


def policy_gradient(tokens: Tokens) -> torch.Tensor:
    """REINFORCE, weighted by how much likelier a token is now than when it was sampled."""
    return -(tokens.lp - tokens.lp_old).exp() * tokens.advantage


async def world(environment: str) -> LocalWorld:
    return LocalWorld(Shouting())


async def learn(steps: int = STEPS) -> list[float]:
    # 1. A policy that acts and learns with one copy of its weights.
    tokenizer = learn_vocabulary([Shouting.instructions, "hello who is there good bye come in"])
    network = tiny_network(
        tokenizer.get_vocab_size(), layers=2, width=64, heads=2, context=256, seed=0
    )
    model = ResidentModel("policy", network, ChatMLRenderer(tokenizer), context=256)
    learner = Learner(model, everything(network), Optimisation(learning_rate=3e-3))
    shaping = Shaping(most_turns=TURNS, world=1.0)  # the world's own reward, turn by turn
    tasks, rewards = Shouting.tasks("shouting"), []

    for step in range(steps):
        # 2. Roll out: a group of episodes for each task, all of them at once.
        chosen = tasks.take(Split.TRAIN, TASKS, start=step * TASKS)
        jobs = [Job(Key(f"rl/{step}", n, m), t) for n, t in enumerate(chosen) for m in range(GROUP)]
        sampling, budget = Sampling(max_tokens=4), Budget(turns=TURNS)
        rollout = Rollout(DirectAgent(), world, {"agent": model}, budget, sampling, seed=step)
        episodes = await rollout.run(jobs)
        # 3. Credit: what each episode earned, and from that one advantage per sampled token.
        batch = trajectories(episodes, shaping, model.name)
        credit = per_call(batch, leave_one_out(batch))
        # 4. Learn: rows of the very tokens that were sampled, one update of the weights.
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
