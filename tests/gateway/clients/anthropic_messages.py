import world
from anthropic import Anthropic

client = Anthropic()
tool = {"name": "act", "description": "Act in the world.", "input_schema": world.SCHEMA}
talk = [{"role": "user", "content": world.TASK}]
while not world.over:
    asked = {"model": world.MODEL, "system": world.SYSTEM, "messages": talk, "tools": [tool]}
    counted = client.messages.count_tokens(**asked).input_tokens
    with client.messages.stream(**asked, max_tokens=200) as stream:
        reply = stream.get_final_message()
    assert reply.usage.input_tokens == counted
    talk.append({"role": "assistant", "content": reply.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": world.act(**block.input)}
        for block in reply.content
        if block.type == "tool_use"
    ]
    talk.append({"role": "user", "content": results})
