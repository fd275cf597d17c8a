"""Chat JSONL: one line per conversation, in the form of fine-tuning tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palaestra.core.episode import Key
from palaestra.store.exchange.chat_jsonl import write_chat
from tests.core import small
from tests.evaluation import made
from tests.store import samples


def rows(path: Path, *episodes: Any) -> list[dict[str, Any]]:
    count = write_chat(path, episodes)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(found) == count
    return found


def test_a_conversation_is_told_whole_and_once(tmp_path: Path) -> None:
    (row,) = rows(tmp_path / "x.jsonl", samples.episode(Key("rl/1", 0)))
    assert [message["role"] for message in row["messages"]] == ["user", "assistant"] * 3
    assert row["messages"][-1] == {"role": "assistant", "content": "go forward"}
    plain = {name: row[name] for name in ("episode", "policy", "outcome", "solved", "reward")}
    assert plain == {
        "episode": "rl/1/0.0",
        "policy": "resident",
        "outcome": "success",
        "solved": True,
        "reward": 1.5,
    }


def test_each_branch_is_a_line(tmp_path: Path) -> None:
    renderer = small.renderer()
    episode = small.run_episode(
        small.Asking([samples.user("up")], [samples.user("down")]),
        small.Sampled([renderer.reply("up"), renderer.reply("down")]),
    )
    found = rows(tmp_path / "x.jsonl", episode)
    assert [row["branch"] for row in found] == [0, 1]
    assert [row["messages"][0]["content"] for row in found] == ["up", "down"]


def test_an_episode_without_model_calls_exports_observations_and_actions(tmp_path: Path) -> None:
    (row,) = rows(tmp_path / "x.jsonl", made.episode("test", 0, made.CRASH))
    assert [message["role"] for message in row["messages"]] == ["user", "assistant"] * 2
    assert row["messages"][1]["content"] == "turn left"
    assert row["reward"] is None and not row["solved"]
