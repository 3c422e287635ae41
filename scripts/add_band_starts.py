"""Adds this processor's starts to the recorded loss curves in workloads/bands.

    scripts/add_band_starts.py [--data FOLDER] [WORKLOAD...]

A curve is followed only from first weights and inputs that are known by their digest, and torch
draws other bits on processors with other instructions. This script builds every followed workload
here, follows its curves from the new start, and adds the start's digest to a band if all of its
curves stay inside; otherwise the band is left as it is and must be recorded anew
(scripts/record_bands.py). The losses and the band itself never change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - the script runs uninstalled

from appliance.errors import ApplianceError, UsageError  # noqa: E402 - the same
from appliance.records.json import to_json  # noqa: E402 - the same
from workloads.contract.failures import ParameterError  # noqa: E402 - the same
from workloads.contract.target import Artifacts, Target  # noqa: E402 - the same
from workloads.loss_curve import LossCurve  # noqa: E402 - the same
from workloads.loss_curve_varying import LossCurveVarying  # noqa: E402 - the same
from workloads.parts.curves import bands, curves  # noqa: E402 - the same
from workloads.recording.provenance import provenance  # noqa: E402 - the same

SUFFIX = "-small-float32"


def starts(name: str, data: Path | None) -> Mapping[int, str]:
    """Digests of this processor's starts that the band does not know, by the curve's seed."""
    band = bands.load_loss_band(name, "float32", is_small=True)
    workload = curves.training_workload(name, "float32", is_small=True)
    unknown = {}
    for curve in band.curves:
        digest = curves.start_digest(workload.build(target(data), curve.seed))
        if digest not in curve.inputs_sha256:
            unknown[curve.seed] = digest
    return unknown


def target(data: Path | None) -> Target:
    folder = Path(tempfile.mkdtemp())
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder), data=data)


def stays_inside(name: str, band: bands.LossBand, seed: int, data: Path | None) -> bool:
    """Whether a right run from this processor's start follows the curve of that seed."""
    is_repeatable = curves.find(name).is_repeatable
    follower = (LossCurve if is_repeatable else LossCurveVarying)(workload=name)
    alone = replace(band, curves=tuple(one for one in band.curves if one.seed == seed))
    with mock.patch.object(bands, "load_loss_band", return_value=alone):
        state = follower.build(target(data), 1)
        for _ in range(follower.steps):
            output = follower.step(state)
        return all(check.is_within for check in follower._check_curve(state, output))  # noqa: SLF001 - as the last step


def added(name: str, data: Path | None) -> str:
    """Add the starts of one band; what became of it, in words."""
    unknown = starts(name, data)
    if not unknown:
        return "known already"
    band = bands.load_loss_band(name, "float32", is_small=True)
    wider = replace(
        band,
        curves=tuple(
            replace(one, inputs_sha256=(*one.inputs_sha256, unknown[one.seed]))
            if one.seed in unknown
            else one
            for one in band.curves
        ),
    )
    if not all(stays_inside(name, wider, seed, data) for seed in unknown):
        return "left as it is: a run from here leaves the band, which must be recorded anew"
    source = f"{band.provenance.processor}; starts also on {provenance().processor}"
    known = replace(wider, provenance=replace(band.provenance, processor=source))
    (bands.FOLDER / f"{name}{SUFFIX}.json").write_bytes(to_json(known))
    return f"added {len(unknown)}"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="add this processor's starts to recorded bands")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("workloads", nargs="*", help="all that have a band, unless some are named")
    options = parser.parse_args(words)
    recorded = sorted(
        path.stem.removesuffix(SUFFIX) for path in bands.FOLDER.glob(f"*{SUFFIX}.json")
    )
    try:
        for name in options.workloads or recorded:
            print(f"{name}: {added(name, options.data)}", flush=True)
    except (ApplianceError, ParameterError) as error:
        print(f"add_band_starts: {error}", file=sys.stderr)
        return UsageError.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
