"""A judge: a language model labels recorded episodes, and its accuracy is measured.

Two rules are judges as well. All three are compared with the recorded outcomes.
Run it: python examples/judge.py
"""

import random
from typing import Literal

import palaestra as pa

Parcels = Literal["apples", "books", "candles"]


class Desk(pa.ToolWorld, capabilities={"oracle"}, typical_turns=4):
    """Send the one parcel that the customer asks for, then finish."""

    def begin(self, task: pa.Task) -> str:
        wanted = random.Random(task.seed).choice(["apples", "books", "candles"])
        self.state = {"wanted": wanted, "sent": [], "finished": False}
        return f"The customer asks for the {wanted}."

    @pa.tool
    def send(self, parcel: Parcels) -> str:
        """Send a parcel; it cannot be called back."""
        self.state["sent"].append(parcel)
        return f"The {parcel} are on their way."

    @pa.tool
    def finish(self) -> str:
        """Say that the work is done."""
        self.state["finished"] = True
        return "The task was completed successfully."  # a claim, true or not

    def verdict(self) -> bool | None:
        if not self.state["finished"]:
            return None
        return self.state["sent"] == [self.state["wanted"]]

    def oracle(self) -> list[pa.Action]:
        missing = [] if self.state["sent"] else [self.call("send", parcel=self.state["wanted"])]
        return [*missing, self.call("finish")]


RUBRIC = {
    "question": "Was the task solved?",
    "criteria": ["By the end of the record, the parcel that was asked for has been sent."],
}


def sent_the_right_one(desk: Desk) -> bool:
    """Check the environment itself, replayed to the end of the episode."""
    return bool(desk.state["sent"] == [desk.state["wanted"]])


if __name__ == "__main__":
    # Episodes of an agent that sometimes errs; the environment records which are solved.
    results = pa.evaluate(Desk, model="expert?error=0.4", n=24, progress=False)
    print(results)

    # A judge reads observations and actions, never a reward. Any model can be a judge.
    small = pa.load("smollm2-135m")
    for judged in (
        results.judge("seen:completed successfully"),  # believes the agent's claim
        results.judge("state:__main__:sent_the_right_one"),
        results.judge(small, rubric=RUBRIC, max_tokens=24),
    ):
        print(judged)
        for episode, verdict in judged.disagreements[:2]:
            said = "solved" if verdict.solved else "not solved"
            print(f"  wrong about {episode.key}: it says {said}, the outcome was {episode.outcome}")
        kappa = judged.agreement.kappa  # agreement beyond chance
        print(f"  believe it? {'yes' if kappa and kappa.low > 0.6 else 'no'}\n")
    print(f"The verdicts are kept: palaestra judge {results.folder}")
