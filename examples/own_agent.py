"""An agent of your own: it calls a model any number of times, and acts.

The prompts of this one list the actions that were tried without success.
Run it: python examples/own_agent.py
"""

import palaestra as pa


class Tenacious(pa.Agent):
    """Keeps a list of actions and their results instead of the whole conversation."""

    name = "tenacious"

    async def run(self, session: pa.Session) -> None:
        tried: list[str] = []
        while not session.over:
            seen = session.observation.text
            prompt = [
                pa.system(session.instructions),
                pa.user(f"You did: {', '.join(tried) or 'nothing'}.\n{seen}"),
            ]
            reply = await session.generate(prompt)
            action = reply.text.strip()
            transition = await session.act(action)
            tried.append(action if transition.valid else f"{action} (not understood)")


if __name__ == "__main__":
    # Lists are combined, every agent with every model: here two agents, and a model that errs.
    results = pa.evaluate(
        "babyai/GoToLocalS5N2", agent=[Tenacious, "direct"], model="expert?error=0.3", n=16
    )
    print(results)
    for episode in results.episodes[:2]:
        print(episode)
    # All prompts and samples are recorded, so the same agent can be trained:
    # pa.train("quick", agent={"name": Tenacious})
