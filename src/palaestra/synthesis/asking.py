"""Questions to a model, each a conversation of its own, and what its replies hold."""

from __future__ import annotations

import json
import re
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.message import system, user
from palaestra.core.model import Model, Prompt, Sampling
from palaestra.core.model_calls import ask as generate

LONGEST = 1500  # tokens of a reply
REPORTED = 80  # characters of a reply in an error


async def ask(model: Model, role: str, question: str, seed: int) -> str:
    """Return the reply of a model that plays a role to one question.

    Args:
        model: whom to ask.
        role: what it is told to be.
        question: all that it reads.
        seed: equal seeds give equal replies of a model in this process.

    Raises:
        ContextTooLong: the question leaves no room for a reply.
        InfrastructureFault: the model failed or could not be reached.
    """
    messages = [system(role), user(question)]
    tokens = tuple(model.renderer.start(messages)) if model.renderer else None
    sampling = Sampling(max_tokens=None if model.max_tokens is None else LONGEST)
    with model.participant():
        found = await generate(model, Prompt(messages, tokens, sampling, seed=seed))
    return found.text


def fenced(reply: str, language: str) -> str:
    """Return the first block of code in a reply; the whole reply if there is none."""
    block = re.search(rf"```(?:{language})?\s*\n(.*?)```", reply, re.DOTALL)
    return (block[1] if block else reply).strip() + "\n"


def json_in(reply: str) -> dict[str, Any]:
    """Return the JSON object of a reply; raises InputError if it holds none."""
    start, end = reply.find("{"), reply.rfind("}")
    try:
        return dict(json.loads(reply[start : end + 1]))
    except ValueError:
        said = " ".join(reply.split())[:REPORTED]
        raise InputError(f"the reply is no JSON object: '{said}'") from None
