"""Imitation, then reinforcement: a tiny transformer learns to walk to an object from scratch.

It first copies the environment's expert, then learns from its own rollouts; the report says what
each of the two was worth on tasks that it has not seen.
Run it: python examples/imitation_then_rl.py
"""

import palaestra as pa

ENVIRONMENT = "babyai/GoToObjS4"

if __name__ == "__main__":
    run = pa.train(
        "quick",  # a recipe: whatever is not said here is as in it
        env=ENVIRONMENT,
        algorithm="loop",
        seed=1,
        model={"context": 512, "tiny": {"layers": 2, "width": 64}},
        imitation={"demonstrations": 192, "epochs": 8, "learning_rate": 3e-3},
        rl={"steps": 12, "tasks": 8, "group": 8, "learning_rate": 3e-4},
        evaluation={"tasks": 32},
    )
    print(run)

    for step in run.metrics:
        print(f"step {step['step']:2}  success {step['success']:.2f}  reward {step['reward']:+.2f}")
    for stage, success in run.report.success.items():
        print(f"{stage:10} {100 * success.mean:5.1f} %  ({100 * success.low:.0f} to "
              f"{100 * success.high:.0f})")  # fmt: skip

    # The trained policy is a Hugging Face checkpoint. It acts wherever a model can.
    policy = pa.load(run.final)
    results = pa.evaluate(ENVIRONMENT, model=policy, n=32, split="validation")
    print(results)

    # Had it been stopped (Ctrl-C, a power cut), this would go on where it stood; now it is done.
    print(pa.open_run(run.path).resume())
