"""An agent of your own: it asks a model as often as it likes, and acts.

This one never goes back to where a reply got it nothing: it tells the model what it has tried.
Run it: python examples/own_agent.py
"""

import palaestra as pa


class Tenacious(pa.Agent):
    """Keeps a list of what it did and what came of it, instead of the whole conversation."""

    name = "tenacious"

    async def run(self, session: pa.Session) -> None:
        tried: list[str] = []
        while not session.over:
            seen = session.observation.text
            prompt = [
                pa.Message("system", session.instructions),
                pa.Message("user", f"You did: {', '.join(tried) or 'nothing'}.\n{seen}"),
            ]
            reply = await session.generate(prompt)
            action = reply.text.strip()
            transition = await session.act(action)
            tried.append(action if transition.valid else f"{action} (not understood)")


if __name__ == "__main__":
    # Every agent with every model: here two agents, and a model that errs now and then.
    results = pa.evaluate(
        "babyai/GoToLocalS5N2", agent=[Tenacious, "direct"], model="expert?error=0.3", n=16
    )
    print(results)
    for episode in results.episodes[:2]:
        print(episode)
    # What an agent asks and what is sampled is recorded, so it can be trained as it is:
    # pa.train("quick", agent={"name": Tenacious})
