import json

import world
from openai import OpenAI

tool = {"name": "act", "description": "Act in the world.", "parameters": world.SCHEMA}
talk = [{"role": "system", "content": world.SYSTEM}, {"role": "user", "content": world.TASK}]
while not world.over:
    reply = OpenAI().chat.completions.create(
        model=world.MODEL, messages=talk, tools=[{"type": "function", "function": tool}]
    )
    message = reply.choices[0].message
    talk.append(message)
    for call in message.tool_calls:
        seen = world.act(**json.loads(call.function.arguments))
        talk.append({"role": "tool", "tool_call_id": call.id, "content": seen})
