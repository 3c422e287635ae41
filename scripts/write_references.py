"""Writes docs/reference/references.md: what the references of the primary rows cost the host.

    scripts/write_references.py

The rows are those of the suite `acceptance` at full size, a job's with a rank on each of eight
devices, as rows that end in -nodes have on two nodes of four.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

from write_suite_times import SEED, device_of  # noqa: E402 - after the path

from appliance.planning import placement, workload_sizes  # noqa: E402 - the same
from appliance.scheduling import references  # noqa: E402 - the same
from appliance.storage import suite_file  # noqa: E402 - the same

PAGE = ROOT / "docs" / "reference" / "references.md"
MODEL = "NVIDIA H100 80GB HBM3"
DEVICES = 8
HEAD = """# What references cost

<!-- written by scripts/write_references.py -->

A checked output is held to a reference that the host computes in float64, and of a decoder of more
than a thousand million weights in 16 bits, `llama`, in float32. The estimate for the
primary rows at full size is the operations of what is computed again, over the rate at which a host
makes references, times {cores} cores. The rates are measured, and named in
`workloads/references.toml`:

{rates}

An estimate counts operations, and is no less than what was measured of the row, which stands
beside: on a virtual machine's {cores} cores, which are half as many cores of two threads each.

It is of one check. The reference of the first output is made by a case's untimed launch, and read
by its others, where the row trains or decodes. One timed launch of each case has a last output
that is checked too, with a reference of its own.

A row should take {limit:g} s at most on {cores} cores. **Rows that take longer: {slow} of {rows}**,
by this estimate or by measurement. They would be marked *over*: of those the time of an untimed
launch would be the host's, and not the device's.

A training step of more operations than a host follows in that time is sampled: it is run once
more, untimed, its loss, logits and gradients are held to the step's, and every call of a module is
held to float64 alone, from what the device gave it. Outputs and the gradients sent back are
followed on the drawn inputs of the batch, the gradients of weights over all inputs for drawn
channels. So a layer that is wrong for every input is found in every step, and what is wrong for one
input alone with the probability that it is drawn, 1 over the batch. The loss is made in float64 of
what the model called. Where a model has more than two billion parameters the layers are drawn too.
Each check states its probability in the record.

The layers of `reformer` are reversible: what they were given is made anew in the backward pass.
Their calls of both passes are followed, what is made anew is held to what there was, and the
backward pass of each layer is made in float64 of what its parts made on the device. Its attention
is written out, in 16 bits: the gradients of queries and keys are small differences of large terms,
and roundings made up to a third of them. So float64 tries with each result rounded to the format
what that costs the call, and allows twice as much beside the bound. A lost gradient of queries
shows where roundings make less than half of it; one that is off by a thousandth, in float32 alone.

The float32 of `llama` follows all layers and all positions, as float64 would. What its own
roundings do is known: one layer, which seed and step draw, is made in float64 too and compared.
At small size the error of the logits is that by float64, but for 1/500 of its bound.

A device that the step fills may lack the memory to run it once more beside what it left there. Then
moments, gradients and logits go to the host meanwhile, and if that is not enough a quarter of the
device's memory of what the forward pass keeps. A step that is not run again even so has not been
judged, and its row is INCONCLUSIVE (`coverage`). Ranks that train together have no such way out.

"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row with the operations of one step of all its ranks, and the estimate in seconds."""

    case: str
    workload: str
    ranks: int
    flops: float | None
    seconds: float | None

    @property
    def is_slow(self) -> bool:
        known = references.load()
        reference = known.of(self.workload)
        measured = 0.0 if reference is None else reference.measured_seconds
        return max(self.seconds or 0.0, measured) > known.limit_seconds


def rows() -> list[Row]:
    """Every primary row."""
    known = references.load()
    suite = suite_file.load_suite("acceptance")[0]
    cases = tuple(replace(item, num_nodes=1, variants=False) for item in suite.case)
    device = device_of(MODEL)
    devices = [replace(device, id=f"cuda:{index}", index=index) for index in range(DEVICES)]
    placed, _ = placement.place(replace(suite, variants=False, case=cases), devices, SEED)
    shipped = workload_sizes.shipped()
    made: dict[str, Row] = {}
    for one in placed:
        answer = shipped.resolved(one.request)
        flops = None if answer is None else answer.work.flops
        parameters = {} if answer is None else answer.parameters
        made.setdefault(
            one.item.id,
            Row(
                case=one.item.id,
                workload=one.item.workload,
                ranks=1 if answer is None else answer.ranks,
                flops=flops,
                seconds=known.seconds(one.item.workload, parameters, flops, known.cores),
            ),
        )
    return list(made.values())


def page(made: list[Row]) -> str:
    """The whole page, the slowest row first."""
    known = references.load()
    rates = "\n".join(
        f"- {one.flops_per_core_second / 1e9:.3g} GFLOP/s a core for {name} ({one.source})"
        for name, one in known.rate.items()
    )
    head = HEAD.format(
        cores=known.cores,
        limit=known.limit_seconds,
        rates=rates,
        rows=len(made),
        slow=sum(row.is_slow for row in made),
    )
    return head + "\n".join(_table(made)) + "\n"


def _table(made: list[Row]) -> Iterator[str]:
    known = references.load()
    yield f"| row | ranks | step, TFLOP | computed again | s, {known.cores} cores | | measured |"
    yield "|---|---:|---:|---|---:|---|---|"
    for row in sorted(made, key=lambda one: -(one.seconds or 0.0)):
        reference = known.of(row.workload)
        what = measured = ""
        if reference is not None:
            what = "; ".join(filter(None, (reference.what, reference.chance)))
            measured = reference.measured
        cells = (
            f"`{row.case}`",
            str(row.ranks),
            "-" if row.flops is None else f"{row.flops / 1e12:,.4g}",
            what,
            "-" if row.seconds is None else f"{row.seconds:,.3g}",
            "over" if row.is_slow else "",
            measured,
        )
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    PAGE.write_text(page(rows()))


if __name__ == "__main__":
    main()
