"""Messages in formats with a role and a text; other content is stored beside them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from palaestra.core.environment import Observation
from palaestra.core.episode import Step
from palaestra.core.message import Image, Message, text_message
from palaestra.store.codec import JSON
from palaestra.store.exchange.plain_json import plain


def beside(message: Message) -> list[JSON] | None:
    """Return the parts of a message as JSON; None if its role and text are all of it."""
    if message == text_message(message.role, message.text):
        return None
    found: list[JSON] = plain(message)["parts"]
    return found


def written(role: str, text: str, parts: JSON = None) -> dict[str, JSON]:
    """Return the JSON of a message, with the parts that `beside` returned."""
    text_parts = [{"type": "text", "text": text}] if text else []
    return {"role": role, "parts": text_parts if parts is None else parts}


def beyond_text(observation: Observation) -> dict[str, JSON]:
    """Return all of an observation except its text, by field; empty fields are left out."""
    rest = plain(observation)
    del rest["text"]
    return {name: value for name, value in rest.items() if value}


def observation_json(text: str, rest: dict[str, JSON]) -> dict[str, JSON]:
    """Return the JSON of an observation; take what `beyond_text` returned out of `rest`."""
    names = [field.name for field in fields(Observation) if field.name != "text"]
    return {"text": text, **{name: rest.pop(name) for name in names if name in rest}}


def who_acted(step: Step) -> dict[str, JSON]:
    """Return the player of a step, and whether it was late or forfeits; empty for a single one."""
    found: dict[str, JSON] = {}
    if step.before.turn is not None:
        found["player"] = step.before.turn
    if step.late:
        found["late"] = True
    if step.forfeit is not None:
        found["forfeit"] = str(step.forfeit.outcome)
    return found


def chat(message: Message) -> dict[str, JSON]:
    """Return a message in the form of chat templates and the chat-completions protocol."""
    found: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.images:
        shown = [{"type": "image_url", "image_url": {"url": one.url}} for one in message.images]
        found["content"] = [{"type": "text", "text": message.text}, *shown]
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": plain(call)["arguments"]},
            }
            for call in message.tool_calls
        ]
    for result in message.tool_results[:1]:
        named = {"tool_call_id": result.id, "name": result.name}
        found |= {name: value for name, value in named.items() if value}
    return found


def shows(message: Message, observation: Observation) -> bool:
    """Return whether a message is exactly the observation."""
    return message == text_message(message.role, observation.text, *observation.images)


def shown(image: Image) -> dict[str, JSON]:
    """Return an image in the form of OpenTelemetry's message parts."""
    about = {"type": "blob", "modality": "image", "mime_type": image.media_type}
    return {**about, "content": image.base64}
