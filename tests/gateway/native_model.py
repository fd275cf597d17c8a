"""A model that takes tools, calls, results, reasoning and images as parts, as a server does."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.message import ToolCall
from palaestra.core.model import Finish, Generation, Model, Prompt

BOTH = (
    ToolCall("act", {"action": "up"}, "call_a1"),
    ToolCall("act", {"action": "fall", "why": {"é": [1, None]}}, "call_b2"),
)


def replied(
    text: str = "",
    *calls: ToolCall,
    reasoning: str = "",
    signature: str = "",
    finish: Finish = Finish.STOP,
) -> Generation:
    """Return a reply as servers send it: with token counts, without tokens."""
    return Generation(
        text,
        (),
        (),
        finish,
        "native",
        version=0,
        prompt_tokens=70,
        computed_tokens=30,
        sampled_tokens=20,
        tool_calls=calls,
        reasoning=reasoning,
        signature=signature,
    )


class Native(Model):
    """Returns prepared replies in order, and records the prompts."""

    name = "native"
    native_tools = True
    max_tokens = None

    def __init__(self, *replies: Generation | Exception) -> None:
        self.replies = list(replies)
        self.prompts: list[Prompt] = []

    @property
    def last(self) -> Prompt:
        """Return the latest prompt."""
        return self.prompts[-1]

    async def generate(self, prompt: Prompt) -> Generation:
        self.prompts.append(prompt)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def calls_of(prompts: Sequence[Prompt]) -> list[str]:
    """Return the ids of all calls in the latest prompt."""
    return [call.id for message in prompts[-1].messages for call in message.tool_calls]
