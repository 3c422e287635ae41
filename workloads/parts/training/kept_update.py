"""What a pass over all weights, gradients and moments of a first step says, made once a run.

Of a large model that pass is most of what a launch checks. What it says follows from the weights
and moments before and after the step, the gradients and the rule, and from nothing else: a launch
whose step has the bits of the untimed one's reads what that launch kept
(`parts/auditing/equal_bits`). A step after the first is looked at in each launch.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from workloads.parts.auditing import equal_bits
from workloads.parts.auditing.fingerprint import fingerprint
from workloads.parts.training import comparisons, rules
from workloads.parts.training.comparisons import Examined
from workloads.parts.training.state import Before, Trained, Training

KEPT = "first_update.json"


def examined(before: Before, state: Training, output: Trained) -> dict[str, Examined]:
    """The pass over all tensors (`comparisons.examine`), or what is kept of one over these bits."""
    num_weights = sum(weight.numel() for weight in before.weights.values())
    if before.number != 0 or state.peers is not None or num_weights < equal_bits.FEWEST:
        return comparisons.examine(before, state, output)

    def make() -> dict[str, dict[str, Any]]:
        made = comparisons.examine(before, state, output)
        return {name: asdict(one) for name, one in made.items()}

    def seen() -> str:
        return _seen(before, state, output)

    kept = equal_bits.once(state.artifacts, KEPT, seen, make)
    return {
        name: Examined(**{**one, "facts": rules.Facts(**one["facts"])})
        for name, one in kept.items()
    }


def _seen(before: Before, state: Training, output: Trained) -> str:
    """Of every bit that the pass reads, and of the rule that it holds them to."""
    moments = [
        {f"{name} {key}": one for name, some in of.items() for key, one in some.items()}
        for of in (before.moments, output.moments)
    ]
    weights = (before.weights, output.weights, output.gradients)
    return fingerprint((), (*weights, *moments), state.rule, before.number)
