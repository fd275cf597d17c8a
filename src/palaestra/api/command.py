"""External programs as agents: `evaluate(…, agent=command("python my_agent.py"))`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence


def command(
    line: str | Sequence[str],
    *,
    sandbox: str | None = None,
    mounts: Sequence[str] = (),
    limits: Mapping[str, int | float] | None = None,
    rewards: bool = True,
) -> str:
    """Return the agent that starts a program for each episode and serves it through the gateway.

    The program finds the model and the environment through environment variables such as
    OPENAI_BASE_URL (docs/gateway.md lists them). Needs `pip install 'palaestra[serving]'`.

    Args:
        line: the command, as a shell line or as a list of arguments.
        sandbox: where the program runs, such as "bubblewrap"; None is a plain process.
        mounts: files and folders that the program sees in the sandbox.
        limits: resource limits of the sandbox, such as `{"memory": 10**9}`.
        rewards: whether the program receives the rewards of its actions.
    """
    from palaestra.gateway.program_agents import name_of

    text = line if isinstance(line, str) else shlex.join(line)
    caps = [f"{name}={value}" for name, value in (limits or {}).items()]
    return name_of(text, sandbox, mounts, caps, rewards=rewards)
