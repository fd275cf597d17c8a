import json

import world
from openai import OpenAI

tool = {"type": "function", "name": "act", "parameters": world.SCHEMA, "strict": False}
earlier, output = None, [{"role": "user", "content": world.TASK}]
while not world.over:
    with OpenAI().responses.stream(
        model=world.MODEL,
        instructions=world.SYSTEM,
        input=output,
        tools=[tool],
        **({"previous_response_id": earlier} if earlier else {}),
    ) as stream:
        reply = stream.get_final_response()
    earlier, output = reply.id, []
    for call in reply.output:
        if call.type == "function_call":
            seen = world.act(**json.loads(call.arguments))
            output.append({"type": "function_call_output", "call_id": call.call_id, "output": seen})
