"""An environment of your own: its tools are methods with annotations and docstrings.

Run it: python examples/own_environment.py
"""

import random
from typing import Literal

import palaestra as pa


class Returns(pa.ToolWorld, capabilities={"oracle"}, typical_turns=4):
    """You work at the returns desk of a shop. Look up the order, then decide.

    Orders of 30 days or less are refunded, older ones are refused.
    """

    def begin(self, task: pa.Task) -> str:
        days = random.Random(task.seed).randrange(60)  # equal tasks give equal episodes
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
        """Return the actions that solve the task: for `model="expert"` and demonstrations."""
        right = "refund" if self.state["days"] <= 30 else "refuse"
        looking = [] if self.state["looked"] else [self.call("look_up")]
        return [*looking, self.call("decide", decision=right)]


if __name__ == "__main__":
    results = pa.evaluate(Returns, model="random", n=32)
    print(results)
    results.episodes[0].show()

    expert = pa.evaluate(Returns, model="expert", n=32)
    print(results.compare(expert))
    # Saved as my_module.py it is "my_module:Returns" on the command line, too:
    # `palaestra check-env my_module:Returns` checks it against the contract of environments.
