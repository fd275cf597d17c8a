"""A team of your own: its members, and who replies when.

Run it: python examples/own_team.py
"""

import palaestra as pa


class SecondOpinion(pa.TeamProtocol):
    """Two propose, and a judge decides where they differ."""

    see = "own"  # as in the file of a team: nobody hears the others
    members = {
        "first": {"instructions": "Work step by step."},
        "second": {"instructions": "Doubt what seems obvious."},
        "judge": {"instructions": "Take the better one."},
    }

    def turn(self):
        first, second = yield self.propose("first", "second")  # at the same time
        if first == second:
            return first
        [decision] = yield self.act("judge")
        return decision


if __name__ == "__main__":
    # The reader is a simulated member, right as often as it says; a model's name stands there else.
    results = pa.evaluate(
        "questions/things-2",
        team=SecondOpinion,
        model="reader?right=0.6",
        roles={"judge": "reader?right=0.9"},
        n=32,
    )
    print(results)
    results.episodes[0].show()
    # Saved as my_module.py it is a team on the command line, too:
    # palaestra eval --env ENV --team my_module:SecondOpinion --model MODEL
