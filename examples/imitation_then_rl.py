"""Imitation, then reinforcement: a tiny transformer learns to walk to an object from scratch.

It first imitates the environment's expert, then learns from its own rollouts. The report has the
success on held-out tasks after each stage.
Run it: python examples/imitation_then_rl.py
"""

import palaestra as pa

ENVIRONMENT = "babyai/GoToObjS4"

if __name__ == "__main__":
    run = pa.train(
        "quick",  # a recipe; the keys below replace some of its values
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

    # The trained policy is a Hugging Face checkpoint, and can be used like any other model.
    policy = pa.load(run.final)
    results = pa.evaluate(ENVIRONMENT, model=policy, n=32, split="validation")
    print(results)

    # After a stop (Ctrl-C, a power cut) this resumes the run; a finished run is returned as it is.
    print(pa.Run(run.path).resume())
