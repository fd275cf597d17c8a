"""An environment of your own: tools are methods, what models read follows from them.

Run it: python examples/own_environment.py
"""

import random
from typing import Literal

import palaestra as pa
from palaestra.core.environment import Capability


class Returns(pa.ToolWorld):
    """You work at the returns desk of a shop. Look up the order, then decide.

    Orders of 30 days or less are refunded, older ones are refused.
    """

    capabilities = pa.ToolWorld.capabilities | {Capability.ORACLE}
    typical_turns = 4

    def begin(self, task: pa.Task) -> str:
        days = random.Random(task.seed).randrange(60)  # equal tasks, equal worlds
        self.state = {"days": days, "looked": False, "decision": ""}
        return f"A customer wants to return order {task.seed}."

    @pa.tool
    def look_up(self) -> str:
        """Show when the order was made."""
        self.state["looked"] = True
        return f"It was made {self.state['days']} days ago."

    @pa.tool
    def decide(self, decision: Literal["refund", "refuse"]) -> str:
        """Tell the customer."""
        self.state["decision"] = decision
        return "The customer leaves."

    def verdict(self) -> bool | None:
        if not self.state["decision"]:
            return None
        right = "refund" if self.state["days"] <= 30 else "refuse"
        return self.state["looked"] and self.state["decision"] == right

    def oracle(self) -> list[pa.Action]:
        """What solves the task from here: for `model="expert"`, and for demonstrations."""
        right = "refund" if self.state["days"] <= 30 else "refuse"
        looking = [] if self.state["looked"] else [self.call("look_up")]
        return [*looking, self.call("decide", decision=right)]


if __name__ == "__main__":
    results = pa.evaluate(Returns, model="random", n=32)
    print(results)
    results.episodes[0].show()

    expert = pa.evaluate(Returns, model="expert", n=32)
    print(results.compare(expert))
    # Saved in a module of its own it is "my_module:Returns" for the command line too, whose
    # `palaestra check-env my_module:Returns` holds it to the contract of environments.
