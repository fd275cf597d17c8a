"""A study with two seeds as a data frame, with one figure per seed.

Needs pandas: pip install 'palaestra[pandas]'. Run it: python examples/two_seeds_dataframe.py
"""

import pandas

import palaestra as pa

ENVIRONMENT = "babyai/GoToObjS4"
SMALL = {
    "model": {"context": 512, "tiny": {"layers": 2, "width": 64}},
    "imitation": {"demonstrations": 96, "epochs": 6, "learning_rate": 3e-3},
    "rl": {"steps": 4, "tasks": 8, "group": 4},
    "evaluation": {"tasks": 16},
}

if __name__ == "__main__":
    runs = {seed: pa.train("quick", env=ENVIRONMENT, seed=seed, **SMALL) for seed in (1, 2)}

    steps = pandas.concat({seed: run.to_pandas() for seed, run in runs.items()}, names=["seed"])
    print(steps.groupby("step")[["success", "reward", "entropy"]].agg(["mean", "min", "max"]))

    # Each seed's policy on the same held-out tasks, episode by episode.
    tests = {
        seed: pa.evaluate(ENVIRONMENT, model=str(run.final), n=16).to_pandas()
        for seed, run in runs.items()
    }
    episodes = pandas.concat(tests, names=["training_seed"]).reset_index(level=0)
    per_seed = episodes.groupby("training_seed")[["solved", "turns"]].mean()
    print(per_seed)
    print(f"success {per_seed.solved.mean():.2f}, from {per_seed.solved.min():.2f} to "
          f"{per_seed.solved.max():.2f} over {len(per_seed)} training seeds")  # fmt: skip
