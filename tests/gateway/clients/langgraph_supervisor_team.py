"""A supervisor that hands over to a worker, whose models are named palaestra/ROLE."""

import os

import world
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor


def model(role: str) -> ChatOpenAI:
    return ChatOpenAI(model=f"palaestra/{role}", base_url=os.environ["OPENAI_BASE_URL"])


worker = create_react_agent(model("worker"), [tool(world.act)], name="worker", prompt=world.SYSTEM)
team = create_supervisor([worker], model=model("planner"), prompt="Hand over to the worker.")
task = {"messages": [{"role": "user", "content": world.TASK}]}
team.compile().invoke(task, {"recursion_limit": 40})
