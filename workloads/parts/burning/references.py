"""What the host holds a burn-in to: float64 for random products, and exact links of its chain.

Neither is the device's own word. Exact products need no more than their golden digests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workloads.parts.burning import mismatches
from workloads.parts.burning.formats import Format
from workloads.parts.burning.mismatches import REPEATS, Event, Slot
from workloads.parts.burning.state import Burnt, State
from workloads.parts.numerics.precision import on_host

NUM_KEYS = 4096
"""Keys of the chain that are kept, the last ones."""
PROJECTION = 6.0  # a projected row errs by a normal deviate of the row's rounding


@dataclass(frozen=True, kw_only=True)
class Float64:
    """Random operands of a format in float64 on the host, and what products of them may err."""

    left: torch.Tensor
    right: torch.Tensor
    rows: torch.Tensor
    signs: torch.Tensor
    format: Format

    @classmethod
    def of(cls, burnt: Burnt, state: State) -> Float64:
        left, right = map(on_host, burnt.operands["random numbers"].pair)
        return cls(left=left, right=right, rows=state.rows, signs=state.signs, format=burnt.format)

    def errors(self, slot: Slot, product: torch.Tensor) -> tuple[float, float]:
        """Error of the sampled rows, and of the worst row's projection, over what is allowed."""
        one, two = self.left[: slot.m, : slot.k], self.right[: slot.k, : slot.n]
        measured = on_host(product)
        rows, signs = self.rows[self.rows < slot.m], self.signs[: slot.n]
        exact = one[rows] @ two
        bound = self.format.rounding(slot.k)
        sampled = float((measured[rows] - exact).norm() / exact.norm())
        residual = (measured @ signs - one @ (two @ signs)).abs() / measured.norm(dim=1)
        return _over(sampled, bound), _over(float(residual.max()), PROJECTION * bound)


def _over(error: float, bound: float) -> float:
    """An error in units of its bound; where nothing may err, infinite for any error."""
    if bound:
        return error / bound
    return math.inf if error else 0.0


def largest(errors: Sequence[float]) -> float:
    """The largest of the errors; NaN if there is one, which Python's max would hide."""
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def wrong_links(state: State, num_checked: int) -> tuple[list[Event], int]:
    """Links that the host finds wrong among those that it recomputes, and how many those are.

    The last one and some of those before, drawn; each is made again on the device.
    """
    last = state.num_steps - 1
    first = max(0, state.num_steps - NUM_KEYS + 1)
    rng = torch.Generator().manual_seed(state.draw + state.num_steps)
    drawn = torch.randint(first, last + 1, (num_checked - 1,), generator=rng)
    chosen = sorted({last, *drawn.tolist()})
    host, keys = state.chain.on_host(), state.keys.tolist()
    events = []
    for link in chosen:
        key, computed = keys[link % NUM_KEYS], keys[(link + 1) % NUM_KEYS]
        right, exact = host.exact_link(key)
        if exact == computed:
            continue
        start = torch.tensor([key], device=state.key.device)
        products = (state.chain.link(start) for _ in range(REPEATS))
        wrong = [product for product, led_to in products if int(led_to) != exact]
        again = f"wrong again in {len(wrong)} of {REPEATS} repeats"
        words = mismatches.difference(wrong[0], right) if wrong else "no repeat is wrong"
        keys_shown = f"{computed % 2**64:016x} for {exact % 2**64:016x}"
        where = f"link {link:,} of the chain, operands of key {key % 2**64:016x}, led to"
        text = f"{where} {keys_shown}, {words}, {again}"
        events.append(Event(where=text, num_again=len(wrong)))
    return events, len(chosen)
