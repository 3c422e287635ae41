"""Whether steps on a device take longer while another process of the run waits on it.

    scripts/idle_neighbour_trial.py [--device cuda:0] [--pairs 12] [--seconds 0.5]

Today no launch is timed while another process has a context of its device
(docs/explanation/once.md, "How far"). This tells what that costs to know: steps of four kinds are
timed in pairs of blocks, one alone and one beside a process that holds a context, what a build
leaves and a product that was made, and waits to be told to end, as a launch ahead would. Which of
a pair comes first alternates. Printed are the medians' ratio (beside over alone), its interval, and
whether it is equivalent within 1 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from appliance.statistics.tolerance import equivalence, paired_ratio

NEIGHBOUR = """
import sys, torch
device = torch.device(sys.argv[1])
held = [torch.ones(2**24, device=device) for _ in range(16)]
product = torch.ones(1024, 1024, device=device) @ torch.ones(1024, 1024, device=device)
float(product[0, 0])
print("ready", flush=True)
sys.stdin.readline()
"""
MARGIN, RISK = 0.01, 0.025
FEWEST = 3  # steps of a block
SETTLE_SECONDS = 1.0
"""After a process has begun or ended its use of the device, which may stall it."""

Step = Callable[[], object]


def steps(device: torch.device) -> Mapping[str, Step]:
    """A product that fills the device, a sum that fills its memory's width, and tiny operations."""
    side, num = (8192, 2**28) if device.type != "cpu" else (512, 2**22)
    left = torch.ones(side, side, device=device, dtype=torch.bfloat16)
    single = torch.ones(side // 2, side // 2, device=device)
    values, small = torch.ones(num, device=device), torch.ones(64, device=device)
    out = torch.empty_like(values)

    def tiny() -> None:
        for _ in range(500):
            small.add_(1.0)

    return {
        "bfloat16 product": lambda: left @ left,
        "float32 product": lambda: single @ single,
        "memory": lambda: torch.add(values, values, out=out),
        "500 tiny operations": tiny,
    }


def block(step: Step, device: torch.device, seconds: float) -> float:
    """The median of steps that are made for so long, in seconds, each until it is done."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < FEWEST or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        times.append(time.perf_counter() - begin)
    return median(times)


@contextmanager
def neighbour(device: torch.device, *, is_there: bool) -> Iterator[None]:
    """A process that waits on the device meanwhile, or none."""
    if not is_there:
        time.sleep(SETTLE_SECONDS)
        yield
        return
    command = [sys.executable, "-c", NEIGHBOUR, str(device)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own words
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            sys.exit(f"the neighbour did not get ready on {device}")
        time.sleep(SETTLE_SECONDS)
        yield
        process.communicate(b"\n")


def main() -> None:
    """Time the pairs and print a line of each kind of step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5)
    given = parser.parse_args()
    device = torch.device(given.device)
    kinds = steps(device)
    for step in kinds.values():
        block(step, device, given.seconds)
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for number in range(given.pairs):
        found: dict[tuple[str, bool], float] = {}
        for is_there in (False, True) if number % 2 == 0 else (True, False):
            with neighbour(device, is_there=is_there):
                for name, step in kinds.items():
                    found[name, is_there] = block(step, device, given.seconds)
        for name, each in pairs.items():
            each.append((found[name, False], found[name, True]))
    for name, each in pairs.items():
        print(f"{name:20s} {median(alone for alone, _ in each) * 1e3:9.4f} ms, {_said(each)}")


def _said(pairs: list[tuple[float, float]]) -> str:
    ratio = paired_ratio(pairs)
    if ratio is None:
        return "no two pairs"
    low, high = ratio.interval(RISK)
    ruled = equivalence(ratio, MARGIN, equivalence_risk=RISK, difference_risk=RISK)
    return f"beside over alone {ratio.ratio:.4f} ({low:.4f} to {high:.4f}), {ruled} within 1 %"


if __name__ == "__main__":
    main()
