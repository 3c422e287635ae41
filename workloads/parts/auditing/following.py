"""All calls that were watched, each held to float64 alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch

from workloads.parts.auditing import layers, replay
from workloads.parts.auditing.calls import Call
from workloads.parts.auditing.errors import Errors
from workloads.parts.auditing.selection import Rows
from workloads.parts.auditing.weights import Sums
from workloads.parts.distributed import tensors
from workloads.parts.numerics.threads import each_on_a_thread

ANEW = 3.0
"""Times its own norm that is added to that of what a backward pass made anew.

It may be so much further off than an output: the roundings of all layers behind it add up."""


@dataclass(kw_only=True)
class Following:
    """Errors of the calls, what weights' gradients they add up to, and statistics of batches.

    `whole`: paths whose calls are followed on all rows. `is_replayed`: whether the own part of the
    module with this path is followed. `rounded`: the format in which
    roundings are tried, if they are.
    """

    rows: Rows
    whole: frozenset[str]
    errors: Errors
    sums: Sums
    is_replayed: Callable[[str], bool] = lambda _: True
    rounded: torch.dtype | None = None
    statistics: layers.Statistics = field(default_factory=dict)

    def follow(self, calls: Iterable[Call]) -> None:
        """Follow these calls and those inside of them.

        Each is followed alone, so they share the threads of the host, and what is noted of them is
        put together in their order: it is the same on any number of threads. But where weights are
        shared out among ranks, which gather them all in the same order, one by one.
        """
        every = [one for call in calls for one in call.all_calls()]
        is_shared_out = any(map(_is_shared_out, every))
        for part in each_on_a_thread(self._followed, every, 1 if is_shared_out else None):
            self.errors.add(part.errors)
            self.sums.add_all(part.sums)
            self.statistics.update(part.statistics)

    def _followed(self, call: Call) -> Following:
        """What is noted of one call."""
        errors = Errors(average=self.errors.average)
        part = replace(self, errors=errors, sums=Sums(names=self.sums.names), statistics={})
        part._follow(call)  # noqa: SLF001 - of its own kind
        return part

    def add_own(self, call: Call, own: replay.Twins) -> None:
        """Add the gradients of a module's own weights, which are over all rows."""
        for name, exact in own.items():
            weight = call.module.get_parameter(name)
            spread = exact.square().mean().expand(exact.shape)
            self.sums.add(weight, lambda tensor: tensor, exact, spread)

    def _follow(self, call: Call) -> None:
        if call.first is not None:  # what is made anew is what there was, but for roundings
            name, before = f"what {call.path} is given anew", call.first.given.first()
            beside = ANEW * before.double()
            self.errors.compare("outputs", name, call.given.first(), before, beside)
        if call.channels is not None:
            layers.follow_layer(call, self.rows, self.errors, self.sums, self.statistics)
        if layers.is_followed_alone(call):
            return
        is_whole = call.path in self.whole
        if not is_whole and not self.is_replayed(call.path):
            return
        narrowed = call if is_whole else call.narrow(self.rows)
        own = replay.follow_call(narrowed, self.errors, self.rounded)
        if is_whole and call.channels is None:
            self.add_own(call, own)


def _is_shared_out(call: Call) -> bool:
    return any(map(tensors.is_shared_out, call.module.parameters(recurse=False)))
