"""The response cache: only identical requests match; a killed process loses nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.errors import InfrastructureFault, InputError
from palaestra.core.message import user
from palaestra.core.model import Generation, Prompt, Sampling
from palaestra.core.tool import Tool
from palaestra.models.remote.remote_model import RemoteModel
from palaestra.models.remote.response_cache import ResponseCache, request_key
from tests.models.crowded import crowded

TOOL = Tool("go", "Walk.", {"type": "object", "properties": {"way": {"type": "string"}}})


def prompt(
    seed: int = 0, words: str = "?", tools: tuple[Tool, ...] = (), **sampling: Any
) -> Prompt:
    return Prompt((user(words),), None, Sampling(**sampling), seed, tools=tools)


async def ask(url: str, file: Path, *prompts: Prompt, model: str = "small") -> list[Generation]:
    remote = RemoteModel(model, url, attempts=1, timeout=10.0, cache=ResponseCache(file))
    try:
        return [await remote.generate(prompt) for prompt in prompts]
    finally:
        await remote.close()


def sent_for(file: Path, *prompts: Prompt) -> int:
    """Return how many requests reach the server for these prompts, sent one after the other."""

    async def run() -> int:
        async with crowded(100) as server:
            await ask(server.url, file, *prompts)
            return len(server.requests)

    return asyncio.run(run())


# ── what is the same request ─────────────────────────────────────────────────


def test_a_second_run_sends_nothing_and_gets_equal_answers(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    prompts = [prompt(seed) for seed in range(20)]

    async def run() -> tuple[list[Generation], list[Generation], int]:
        async with crowded(100) as server:
            first = await ask(server.url, file, *prompts)
            second = await ask(server.url, file, *prompts)
            return first, second, len(server.requests)

    first, second, requests = asyncio.run(run())
    assert requests == 20
    assert [(g.text, g.finish, g.prompt_tokens) for g in first] == [
        (g.text, g.finish, g.prompt_tokens) for g in second
    ]
    assert {g.computed_tokens for g in first} == {10}
    assert {g.computed_tokens for g in second} == {0}  # nothing was computed


def test_the_same_prompt_with_the_same_seed_is_one_request(tmp_path: Path) -> None:
    assert sent_for(tmp_path / "a.db", prompt(1), prompt(1)) == 1


@pytest.mark.parametrize(
    "other",
    [
        prompt(2),
        prompt(1 + 2**40),  # the same in the bits that are sent
        prompt(1, temperature=0.5),
        prompt(1, max_tokens=65),
        prompt(1, stop=("x",)),
        prompt(1, words="? "),
        prompt(1, reasoning_effort="low"),
        prompt(1, tools=(TOOL,)),
    ],
    ids=[
        "seed",
        "high bits of the seed",
        "temperature",
        "max_tokens",
        "stop",
        "words",
        "effort",
        "tools",
    ],
)
def test_whatever_differs_is_another_request(tmp_path: Path, other: Prompt) -> None:
    assert sent_for(tmp_path / "a.db", prompt(1), other) == 2


OTHERS: dict[str, dict[str, Any]] = {
    "tools": {"tools": (replace(TOOL, description="Run."),)},
    "schema": {"tools": (replace(TOOL, parameters={"type": "object"}),)},
    "choice": {"tools": (TOOL,), "tool_choice": "required"},
    "parallel": {"tools": (TOOL,), "parallel_tool_calls": False},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_tools_and_how_they_may_be_called_are_part_of_the_request(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    assert sent_for(tmp_path / "a.db", prompt(1, tools=(TOOL,)), prompt(1, **other)) == 2


def test_another_model_or_server_is_another_request() -> None:
    request = {"messages": []}
    keys = {
        request_key("/chat", model, url, request, 0)
        for model in ("a", "b")
        for url in ("http://x/v1", "http://y/v1")
    }
    assert len(keys) == 4


def test_order_and_a_trailing_slash_make_no_other_request() -> None:
    one = request_key("/chat", "a", "http://x/v1", {"seed": 1, "stop": ["é"]}, 1)
    assert one == request_key("/chat", "a", "http://x/v1/", {"stop": ["é"], "seed": 1}, 1)


def test_an_answer_that_cannot_be_used_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"

    async def run() -> tuple[str, int]:
        moods = ["rubbish", "error", "drop", "good", "good"]
        async with crowded(100, mood=moods.__getitem__) as server:
            for _ in range(3):
                with pytest.raises(InfrastructureFault):
                    await ask(server.url, file, prompt())
            await ask(server.url, file, prompt())
            (reply,) = await ask(server.url, file, prompt())
            return reply.text, len(server.requests)

    assert asyncio.run(run()) == ("seed 0", 4)


def test_of_two_answers_to_one_request_both_askers_get_the_first(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        answers = ResponseCache(tmp_path / "a.db")
        kept = [await answers.put("key", {"n": number}) for number in (1, 2)]
        kept.append(await answers.get("key"))
        await answers.close()
        return kept

    assert asyncio.run(run()) == [{"n": 1}] * 3


def test_who_is_cancelled_after_the_answer_came_still_keeps_it(tmp_path: Path) -> None:
    async def run() -> Any:
        answers = ResponseCache(tmp_path / "a.db")
        await answers.get("other")  # the file is open
        task = asyncio.create_task(answers.put("key", "said"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        kept = await answers.get("key")
        await answers.close()
        return kept

    assert asyncio.run(run()) == "said"


# ── processes ────────────────────────────────────────────────────────────────

WRITER = """
import asyncio, sys
from pathlib import Path
from palaestra.models.remote.response_cache import ResponseCache

async def main(file, name, most):
    answers = ResponseCache(Path(file))
    for number in range(int(most)):
        await answers.put(f"{name} {number}", {"n": number, "words": "x" * 2000})
        print(number, flush=True)
    await answers.close()

asyncio.run(main(*sys.argv[1:]))
"""


def writer(file: Path, name: str, most: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(file), name, str(most)]
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def kept(file: Path, *keys: str) -> list[Any]:
    async def run() -> list[Any]:
        answers = ResponseCache(file)
        found = [await answers.get(key) for key in keys]
        await answers.close()
        return found

    return asyncio.run(run())


def test_a_process_killed_while_it_writes_loses_no_answer_that_it_kept(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    process = writer(file, "a", 1_000_000)
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if int(line) >= 150:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        shown = 151 + len(lines.read().split("\n")[:-1])
    found = kept(file, *(f"a {number}" for number in range(shown)))
    assert [answer["n"] for answer in found] == list(range(shown))
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_processes_that_begin_together_share_one_file(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    processes = [writer(file, name, 100) for name in "ab"]
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0]
    for name in "ab":
        found = kept(file, *(f"{name} {number}" for number in range(100)))
        assert [answer["n"] for answer in found] == list(range(100))


FULL = """
import asyncio, resource, sys
from pathlib import Path
from palaestra.core.errors import StorageFull
from palaestra.models.remote.response_cache import ResponseCache

async def main(file):
    answers = ResponseCache(Path(file))
    await answers.get("")
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        for number in range(1000):
            await answers.put(str(number), "x" * 2000)
    except StorageFull as error:
        print(number, error)

asyncio.run(main(sys.argv[1]))
"""


def test_a_full_disk_is_reported_and_what_was_kept_before_is_intact(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(file)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    count, _, words = done.stdout.partition(" ")
    assert "full" in words, done.stderr
    assert kept(file, *map(str, range(int(count)))) == ["x" * 2000] * int(count)


# ── files that cannot be ─────────────────────────────────────────────────────


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("to do")
    with pytest.raises(InputError, match="not a response cache"):
        ResponseCache(notes)
    assert notes.read_text() == "to do"


def test_a_database_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE other (a)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(InputError, match="not a response cache"):
        kept(file, "key")
    assert file.read_bytes() == before


def test_a_damaged_file_is_an_input_error(tmp_path: Path) -> None:
    file = tmp_path / "damaged.db"
    file.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    with pytest.raises(InputError, match=r"damaged\.db"):
        kept(file, "key")


def test_a_folder_or_a_missing_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        ResponseCache(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        ResponseCache(tmp_path / "none" / "answers.db")


def test_a_file_that_another_writes_to_for_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaestra.models.remote.response_cache.BUSY_SECONDS", 0.1)
    file = tmp_path / "answers.db"
    kept(file, "key")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def run() -> None:
        answers = ResponseCache(file)
        try:
            assert await answers.get("key") is None  # readers do not wait
            with pytest.raises(InfrastructureFault, match="locked"):
                await answers.put("key", 1)
        finally:
            await answers.close()

    asyncio.run(run())
    other.close()
