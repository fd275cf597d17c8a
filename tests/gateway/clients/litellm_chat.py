import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import world

tool = {"name": "act", "description": "Act in the world.", "parameters": world.SCHEMA}
talk = [{"role": "system", "content": world.SYSTEM}, {"role": "user", "content": world.TASK}]
while not world.over:
    reply = litellm.completion(
        model=f"openai/{world.MODEL}",
        messages=talk,
        tools=[{"type": "function", "function": tool}],
        api_base=os.environ["OPENAI_BASE_URL"],
    )
    message = reply.choices[0].message
    talk.append(message.model_dump())
    for call in message.tool_calls or []:
        seen = world.act(**json.loads(call.function.arguments))
        talk.append({"role": "tool", "tool_call_id": call.id, "content": seen})
