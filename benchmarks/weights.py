"""270 MB of weights to three engines on Ray, against gloo's broadcast to three ranks.

python benchmarks/weights.py [--json]

All in one run on one machine, in alternating rounds. A round of the engines begins with the copy
that the driver makes of the weights, and ends when all have confirmed that they act with them; the
broadcast's is that of one tensor of the same size, from its start to a barrier behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ray
from engine_policy import Policy, acting

ENGINES, ROUNDS = 3, 7
LAYERS, WIDTH = 9, 768  # 67 million weights

RANK = """
import sys, time, torch, torch.distributed as dist
rank, port, size = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
data = torch.ones(size // 4)
for line in sys.stdin:
    dist.barrier()
    started = time.perf_counter()
    dist.broadcast(data, 0)
    dist.barrier()
    print(time.perf_counter() - started, flush=True)
"""


class Ranks:
    """Four ranks that broadcast when they are asked to."""

    def __init__(self, size: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), str(port), str(size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(ENGINES + 1)
        ]

    def broadcast(self) -> float:
        """Return the seconds of one broadcast."""
        for process in self.processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return max(float(process.stdout.readline()) for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()


async def measure(folder: Path) -> tuple[int, list[float], list[float]]:
    """Return the bytes, and the seconds of each round on engines and by broadcast."""
    policy = Policy(
        folder, f"model.tiny.layers={LAYERS}", f"model.tiny.width={WIDTH}", "model.tiny.heads=12"
    )
    size = len(policy.weights().data)
    ranks = Ranks(size)
    engines_took: list[float] = []
    broadcasts: list[float] = []
    try:
        async with acting(policy, ENGINES, sessions=8) as (engines, _):
            for number in range(ROUNDS + 1):
                await asyncio.sleep(0.5)
                policy.model.updated()
                started = time.perf_counter()
                await engines.publish(policy.weights())
                await engines.until(lambda: engines.router.serving == ENGINES)
                seconds = time.perf_counter() - started
                broadcast = await asyncio.to_thread(ranks.broadcast)
                if number:  # the first round warms up
                    engines_took.append(seconds)
                    broadcasts.append(broadcast)
    finally:
        ranks.close()
    return size, engines_took, broadcasts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ray.init(address="local", num_cpus=ENGINES, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        size, engines, broadcasts = asyncio.run(measure(Path(folder)))
    ray.shutdown()
    ratios = sorted(a / b for a, b in zip(engines, broadcasts, strict=True))
    found = {
        "bytes": size,
        "engines_seconds": statistics.median(engines),
        "broadcast_seconds": statistics.median(broadcasts),
        "ratio": statistics.median(ratios),
        "ratio_smallest": ratios[0],
        "ratio_largest": ratios[-1],
    }
    if options.json:
        print(json.dumps(found))
        return
    print(f"{size / 1e6:.0f} MB of weights to {ENGINES} engines, medians of {ROUNDS} rounds")
    print(f"engines, until they act with them  {found['engines_seconds']:.2f} s")
    print(f"gloo's broadcast                   {found['broadcast_seconds']:.2f} s")
    print(f"ratio {found['ratio']:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
