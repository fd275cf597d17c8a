"""AgentLab's generic agent, unmodified, on environments of palaestra.

    python scripts/agentlab_agent.py miniwob/click-button web/easy [--tasks 3]

needs AgentLab (`pip install agentlab`; the agent imports neither its torch nor its ray) in an
environment of its own, with palaestra on PYTHONPATH. Its chat model is scripted: it replies with
what the environment's expert does next. So what is shown is that the agent reads our observations
and that its actions are understood, from AgentLab's own loop of an experiment.
"""

from __future__ import annotations

import argparse
import tempfile
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentlab.agents.generic_agent.generic_agent import GenericAgentArgs
from agentlab.agents.generic_agent.tmlr_config import BASE_FLAGS
from agentlab.experiments.loop import EnvArgs, ExpArgs, get_exp_result
from agentlab.llm.base_api import AbstractChatModel, BaseModelArgs
from agentlab.llm.llm_utils import AIMessage
from bgym import HighLevelActionSetArgs

import palaestra as pa
from palaestra.core.task import Split
from palaestra.environments import registry


class Expert(AbstractChatModel):  # type: ignore[misc]
    """A chat model that says what the environment's expert does in a twin of the episode."""

    def __init__(self, id: str, seed: int) -> None:
        self._twin = registry.make(f"{id}?dialect=browsergym")
        self._twin.reset(registry.tasks(id).task(Split.TEST, seed))

    def __call__(self, messages: Any) -> Any:
        action = self._twin.oracle()[0]
        if self._twin.step(action).terminated:
            self._twin.close()
        return AIMessage(f"<think>It is known.</think>\n<action>\n{action.text}\n</action>")


@dataclass
class ExpertArgs(BaseModelArgs):  # type: ignore[misc]
    """What AgentLab keeps of a model."""

    model_name: str = "expert"
    id: str = ""
    seed: int = 0

    def make_model(self) -> Expert:
        return Expert(self.id, self.seed)


def experiment(id: str, seed: int, most: int) -> tuple[float, int, str]:
    """Run one of AgentLab's experiments; return the reward, the steps, and its error if any."""
    task = pa.to_browsergym(id).removeprefix("browsergym/")
    flags = deepcopy(BASE_FLAGS)
    flags.max_prompt_tokens = None  # else its tokens are counted by a file from the network
    subsets = ["chat", "infeas", "bid", "coord", "nav"]
    flags.action.action_set = HighLevelActionSetArgs(subsets=subsets)
    agent = GenericAgentArgs(chat_model_args=ExpertArgs(id=id, seed=seed), flags=flags)
    env = EnvArgs(task_name=task, task_seed=seed, max_steps=most)
    run = ExpArgs(agent_args=agent, env_args=env)
    with tempfile.TemporaryDirectory() as folder:
        run.prepare(Path(folder))
        run.run()
        found = get_exp_result(run.exp_dir).summary_info
    return float(found["cum_reward"]), int(found["n_steps"]), run.err_msg or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="+")
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    chosen = parser.parse_args()
    for id in chosen.ids:
        for seed in range(chosen.tasks):
            reward, steps, error = experiment(id, seed, chosen.steps)
            print(
                f"{id} task {seed}: reward {reward:g} in {steps} steps {error}".rstrip(), flush=True
            )


if __name__ == "__main__":
    main()
