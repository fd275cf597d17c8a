import world
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=world.MODEL).bind_tools([tool(world.act)])
talk = [SystemMessage(world.SYSTEM), HumanMessage(world.TASK)]
while not world.over:
    reply = model.invoke(talk)
    talk.append(reply)
    for call in reply.tool_calls:
        talk.append(ToolMessage(world.act(**call["args"]), tool_call_id=call["id"]))
