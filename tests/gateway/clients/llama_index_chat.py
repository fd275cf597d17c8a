import os

import world
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model=world.MODEL,
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    is_chat_model=True,
    is_function_calling_model=True,
)
talk = [
    ChatMessage(role="system", content=world.SYSTEM),
    ChatMessage(role="user", content=world.TASK),
]
while not world.over:
    reply = model.chat_with_tools([FunctionTool.from_defaults(world.act)], chat_history=talk)
    talk.append(reply.message)
    for call in model.get_tool_calls_from_response(reply):
        seen = world.act(**call.tool_kwargs)
        about = {"tool_call_id": call.tool_id}
        talk.append(ChatMessage(role="tool", content=seen, additional_kwargs=about))
