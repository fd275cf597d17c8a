"""`palaestra.to_browsergym`: our pages with BrowserGym's observations and actions."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments import registry

gymnasium = pytest.importorskip("gymnasium", reason="needs gymnasium")
SCRIPT = Path(__file__).parents[2] / "scripts/agentlab_agent.py"


def test_an_episode_in_browsergym_s_actions_is_ours() -> None:
    name = pa.to_browsergym("web/easy")
    assert name == "browsergym/palaestra.web.easy" == pa.to_browsergym("web/easy")
    env = gymnasium.make(name, max_episode_steps=40, headless=True, action_mapping=str)
    twin = registry.make("web/easy?dialect=browsergym")
    twin.reset(registry.tasks("web/easy").task(Split.TEST, 3))
    seen, _ = env.reset(seed=3)
    assert seen["goal_object"][0]["text"] == seen["goal"] and "Task:" in seen["goal"]
    nodes = seen["axtree_object"]["nodes"]
    assert {node["browsergym_id"] for node in nodes if "browsergym_id" in node} == {
        *seen["extra_element_properties"]
    }
    terminated, steps = False, 0
    while not terminated:
        action = twin.oracle()[0]
        twin.step(action)
        assert action.text.endswith(")"), action.text  # the oracle speaks the dialect
        seen, reward, terminated, truncated, info = env.step(action.text)
        assert not seen["last_action_error"] and not truncated
        steps += 1
    assert reward == 1.0 and info["task_info"]["success"] and steps > 1
    env.close()


def test_what_is_wrong_with_an_action_is_in_the_observation() -> None:
    env = gymnasium.make(pa.to_browsergym("web/easy", split="train"))
    env.reset(seed=0)
    for action, said in (("click('nowhere')", "no element"), ("import os; os.remove('x')", "")):
        seen, reward, terminated, *_ = env.step(action)
        assert said in seen["last_action_error"] and seen["last_action_error"]
        assert seen["last_action"] == action and not reward and not terminated
    env.close()


def test_what_is_no_page_is_refused() -> None:
    with pytest.raises(InputError, match="no page for one agent"):
        pa.to_browsergym("probe/memory-4")
    with pytest.raises(InputError, match="no option record_video_dir"):
        gymnasium.make(pa.to_browsergym("web/easy"), record_video_dir="/tmp/x")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("agentlab") is None, reason="needs AgentLab")
def test_agentlab_s_generic_agent_acts_unmodified() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "web/easy", "--tasks", "2"], capture_output=True, text=True
    )
    assert done.stdout.count("reward 1 in") == 2, done.stdout + done.stderr
