"""ATIF trajectories: what is written is valid, and what other programs wrote is understood.

Valid is what keeps to the published definition, v1.7: see `atif_definition.py`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Key
from palaestra.core.message import ToolCall, assistant, text_message, user
from palaestra.core.outcome import Outcome, Owner
from palaestra.store.exchange.atif import trajectory, write_atif
from palaestra.store.exchange.atif_import import read_atif
from tests.core import small
from tests.evaluation import made
from tests.store import samples
from tests.store.exchange.atif_definition import Trajectory

# As Harbor's documentation shows one: two tools at once, then an answer with its tokens.
STOCK: dict[str, Any] = {
    "schema_version": "ATIF-v1.5",
    "session_id": "stock",
    "agent": {"name": "harbor-agent", "version": "1.0.0", "model_name": "gem"},
    "final_metrics": {"total_prompt_tokens": 1120, "total_completion_tokens": 83},
    "steps": [
        {"step_id": 1, "source": "user", "message": "What is the price of GOOGL?"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "I will search.",
            "reasoning_content": "Two numbers are needed.",
            "tool_calls": [
                {"tool_call_id": "a", "function_name": "find", "arguments": {"what": "price"}},
                {"tool_call_id": "b", "function_name": "find", "arguments": {"what": "volume"}},
            ],
            "observation": {
                "results": [
                    {"source_call_id": "b", "content": "1.5M"},
                    {"source_call_id": "a", "content": "185.35"},
                ]
            },
            "metrics": {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "prompt_token_ids": [1, 2, 3],
                "completion_token_ids": [4, 5],
                "logprobs": [-0.1, -0.2],
            },
        },
        {
            "step_id": 3,
            "source": "agent",
            "message": "It trades at 185.35.",
            "metrics": {
                "prompt_tokens": 7,
                "completion_tokens": 1,
                "prompt_token_ids": [1, 2, 3, 4, 5, 6, 7],
                "completion_token_ids": [8],
                "logprobs": [-0.5],
            },
        },
    ],
}


def read(path: Path, document: Any = STOCK) -> Episode:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    (episode,) = read_atif(path)
    return episode


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(samples.episodes)
def test_what_is_written_keeps_to_the_definition(episode: Episode) -> None:
    document = json.dumps(trajectory(episode))
    Trajectory.model_validate_json(document)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(samples.episodes)
def test_an_independent_reader_takes_it(episode: Episode) -> None:
    atif = pytest.importorskip("atif", reason="pip install atif: models of ATIF by others")
    atif.Trajectory.model_validate(json.loads(json.dumps(trajectory(episode))))


def test_a_prompt_that_only_repeats_what_was_observed_is_no_step_of_its_own() -> None:
    renderer = small.renderer()

    class Shown(small.Asking):
        async def run(self, session: Any) -> None:
            output = [user(session.observation.text)]
            for _ in range(2):
                reply = await session.generate(output)
                seen = (await session.act(reply.text, by=reply)).observation.text
                output += [assistant(reply.text), user(seen)]

    episode = small.run_episode(
        Shown(), small.Sampled([renderer.reply("up"), renderer.reply("up")])
    )
    shown = [step["source"] for step in trajectory(episode)["steps"]]
    assert shown == ["user", "agent", "agent"]


def test_calls_of_tools_and_their_results_belong_together() -> None:
    episode = made.episode("test/rl", 0, made.SUCCESS)
    call = ToolCall("move", {"to": "north", "steps": 2})
    first = replace(episode.steps[0], action=Action("move(to='north')", call))
    document = trajectory(replace(episode, steps=(first, *episode.steps[1:])))
    step = document["steps"][0]
    (tool,), (result,) = step["tool_calls"], step["observation"]["results"]
    assert (tool["function_name"], tool["arguments"]) == (call.name, dict(call.arguments))
    assert result["source_call_id"] == tool["tool_call_id"]
    assert step["llm_call_count"] == 0, "no model was asked"


def test_agent_steps_of_others_become_calls_with_their_tokens(tmp_path: Path) -> None:
    episode = read(tmp_path / "x.json")
    first, second = episode.calls
    assert first.reply.text == "<think>\nTwo numbers are needed.\n</think>\n\nI will search."
    assert (first.prompt, first.completion, first.logprobs) == ((1, 2, 3), (4, 5), (-0.1, -0.2))
    assert second.parent == 0 and second.prompt == (6, 7) and second.completion == (8,)
    assert second.messages == (text_message("tool", "185.35"), text_message("tool", "1.5M"))
    assert episode.graph.tokens(1) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert first.policy == "gem" and episode.agent == "harbor-agent"


def test_tool_calls_of_others_become_steps_and_the_answer_is_the_last(tmp_path: Path) -> None:
    episode = read(tmp_path / "x.json")
    assert [step.transition.observation.text for step in episode.steps] == ["185.35", "1.5M", ""]
    assert [step.call for step in episode.steps] == [0, 0, 1]
    assert episode.steps[1].action.call == ToolCall("find", {"what": "volume"})
    assert episode.steps[2].action.text == "It trades at 185.35."
    assert (episode.usage.prompt_tokens, episode.usage.sampled_tokens) == (1120, 83)


def test_a_prompt_that_does_not_continue_the_last_one_starts_a_new_root(tmp_path: Path) -> None:
    document = json.loads(json.dumps(STOCK))
    document["steps"][2]["metrics"]["prompt_token_ids"] = [9, 9]
    second = read(tmp_path / "x.json", document).calls[1]
    assert second.parent is None and second.prompt == (9, 9)
    assert len(second.messages) == 4


def test_the_outcome_is_what_harbors_verifier_gave(tmp_path: Path) -> None:
    unknown = read(tmp_path / "bare" / "trajectory.json")
    assert not unknown.outcome.scored
    assert unknown.outcome.owner is Owner.INFRASTRUCTURE
    for reward, outcome in ((1.0, Outcome.success()), (0.5, Outcome.failure())):
        trial = tmp_path / f"job/trial-{reward}"
        file = trial / "agent" / "trajectory.json"
        file.parent.mkdir(parents=True)
        result = {"verifier_result": {"rewards": {"reward": reward}}}
        (trial / "result.json").write_text(json.dumps(result))
        episode = read(file)
        assert (episode.outcome, episode.reward) == (outcome, reward)
    assert [str(episode.key) for episode in read_atif(tmp_path / "job")] == [
        "atif/harbor-agent/0.0",
        "atif/harbor-agent/1.0",
    ]


def test_embedded_agents_are_roles_and_pictures_are_named(tmp_path: Path) -> None:
    document = json.loads(json.dumps(STOCK)) | {"schema_version": "ATIF-v1.7"}
    picture = {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}
    document["steps"][0]["message"] = [{"type": "text", "text": "Look:"}, picture]
    helper = {"agent": {"name": "helper", "version": "1"}, "trajectory_id": "h", "steps": []}
    helper["steps"] = [
        {"step_id": 1, "source": "user", "message": "Add."},
        {"step_id": 2, "source": "agent", "message": "Done."},
    ]
    episode = read(tmp_path / "x.json", document | {"subagent_trajectories": [helper]})
    assert episode.calls[0].messages[0].text == "Look:\n[image: a.png]"
    assert [call.role for call in episode.calls] == ["agent", "agent", "helper"]


def test_a_folder_has_one_file_for_each_episode(tmp_path: Path) -> None:
    episodes = [samples.episode(Key("rl/1", group)) for group in range(3)]
    write_atif(tmp_path / "all", episodes)
    assert len(list((tmp_path / "all").iterdir())) == 3
    assert list(read_atif(tmp_path / "all")) == episodes
