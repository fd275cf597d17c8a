"""A first evaluation: how well chance does in a grid world, and how well one who knows the way.

Run it: python examples/first_evaluation.py
"""

import palaestra as pa

LEVEL = "babyai/GoToLocalS5N2"  # `palaestra list` shows what else there is

# Any model will do: "smollm2-135m", a run's folder, "openai:MODEL@URL". These two need none.
chance = pa.evaluate(LEVEL, agent="direct", model="random", n=16)
expert = pa.evaluate(LEVEL, agent="direct", model="expert", n=16)

print(chance)  # success with its interval, what it cost, what was left out and why
chance.episodes[0].show()  # one of the 16, turn by turn
print(chance.compare(expert))  # task by task, with an interval and a p-value

failed = [episode for episode in chance.episodes if not episode.outcome.solved]
print(f"\nChance failed in {len(failed)} of {len(chance.episodes)} tasks; the first one is:")
print(failed[0])
print(f"All of it lies in {chance.folder}: palaestra view {chance.folder}")
