"""A first evaluation: a random agent and the environment's expert in a grid world.

Run it: python examples/first_evaluation.py
"""

import palaestra as pa

LEVEL = "babyai/GoToLocalS5N2"  # `palaestra list` shows the others

# Other models: "smollm2-135m", a run's folder, "openai:MODEL@URL". These two need no weights.
baseline = pa.evaluate(LEVEL, agent="direct", model="random", n=16)
expert = pa.evaluate(LEVEL, agent="direct", model="expert", n=16)

print(baseline)  # success with its interval, cost, and excluded episodes with reasons
baseline.episodes[0].show()  # one of the 16, turn by turn
print(baseline.compare(expert))  # task by task, with an interval and a p-value

failed = [episode for episode in baseline.episodes if not episode.outcome.solved]
print(f"\nThe random agent failed in {len(failed)} of {len(baseline.episodes)} tasks; the first:")
print(failed[0])
print(f"The record is in {baseline.folder}: palaestra view {baseline.folder}")
