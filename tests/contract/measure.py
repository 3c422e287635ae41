"""Measures the smallest error that each check finds, for docs/reference/checks.md.

    python tests/contract/measure.py NAME...

Prints one table per workload at its small size (the contract test's), of the last step: for every
check its healthy error, its bound, what it says that it detects, and the smallest scale of a whole
tensor and the smallest move of one element that it was seen to refuse, by factors of four.
"""

# ruff: noqa: T201 - started by a person, whom it tells

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
import trial
from conftest import remembered_results
from corruptions import largest, moved, place, scaled
from leaves import leaves

LEAST = -26  # power of two


def rows(name: str) -> list[str]:
    """The table's lines for one workload."""
    kind = trial.load(name)
    workload = kind(**{**kind.small, **trial.QUICKER.get(name, {})})
    subject = trial.Trial(workload, Path(tempfile.mkdtemp()))
    *_, moment = subject.moments()
    probe = trial.Probe(subject, moment, subject.checks(moment))
    scale, element = dict.fromkeys(probe.healthy, ""), dict.fromkeys(probe.healthy, "")
    for path in largest(leaves(moment.output)):
        leaf = leaves(moment.output)[path]
        where, label = place(leaf), path[0] if path else "output"
        for result, spoil in (
            (scale, lambda by, leaf=leaf: scaled(leaf, 1 + by)),
            (element, lambda by, leaf=leaf, where=where: moved(leaf, where, by)[0]),
        ):
            seen: dict[str, int] = {}
            for power in range(0, LEAST, -2):
                outside = {
                    check.name
                    for check in probe.errors(path, spoil(2.0**power)).values()
                    if not check.is_within
                }
                seen |= dict.fromkeys(outside, power)
                if not outside:
                    break
            for check, power in seen.items():
                result[check] += f"{', ' if result[check] else ''}{label} {2.0**power:.1e}"
    return [
        f"| {check.name} | {check.error:.1e} | {check.bound:.1e} | {_claim(check)} "
        f"| {scale.get(check.name) or '—'} | {element.get(check.name) or '—'} |"
        for check in subject.checks(moment)
    ]


def _claim(check: trial.Check) -> str:
    if check.detects is None:
        return "exact"
    return f"{check.detects:.1e} {check.detects_what}"


def main() -> None:
    torch.set_num_threads(1)
    with remembered_results():
        for name in sys.argv[1:]:
            print(f"\n### {name}\n")
            print("| check | healthy | bound | detects | smallest scale | smallest element |")
            print("|---|---|---|---|---|---|")
            print("\n".join(rows(name)), flush=True)


if __name__ == "__main__":
    main()
