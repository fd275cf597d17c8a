import world
from agents import Agent, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)
agent = Agent(
    name="player",
    instructions=world.SYSTEM,
    model=world.MODEL,
    tools=[function_tool(world.act)],
)
Runner.run_sync(agent, world.TASK, max_turns=9)
