"""What the child measures a launch by and the verifier holds its records against.

How many steps there are of which each takes very long follows from a rule.
The protocol's numbers of steps are for steps of up to a few seconds. Of one that takes 20 s they
are 12 minutes of one launch, and a launch's own spread is the smaller part: what differs between
launches decides (Kalibera and Jones 2013: repetitions inside a launch pay as far as they cost less
than another launch, by the root of the ratio of variances). So a warm-up that has kept the device
busy for `LONG_WARM_UP_SECONDS` ends with `LEAST_WARM_UP_STEPS`, and a block has as many steps as
fill `LONG_BLOCK_SECONDS` at the warm-up's pace, but no fewer than `LEAST_BLOCK_STEPS`: those from
which on a series is told steady or not (`statistics/steady_state`). Who verifies a bundle counts
them again from the times of the warm-up. Of inference, whose timed outputs are drawn among the
protocol's steps, all of these are made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the help of the verbs reads constants, and no record
    from appliance.records.plan import Case, Launch
    from appliance.records.suite import Protocol


REPEATED_INPUT_BOUND = 0.1
"""Part of a step's time that repeating its input may save, after MLPerf's audit TEST04."""
NUM_CLOCK_SPANS = 3
"""Spans of work over which a launch compares its clocks; one alone may be disturbed."""
NUM_EMPTY_BLOCKS, EMPTY_BLOCK_STEPS = 5, 32
"""Blocks of steps that do nothing, and steps of each, that show what timing a step costs."""
SHARED_MEMORY = "shared_memory"
"""Reason of a launch that lacked memory beside the build of the next one: an interruption."""
REPEATS_AFTER_MISMATCH = 100
"""Repeats of the same operands that follow a mismatch in the deterministic phase."""
FIRST_REPEAT = -1
"""Number of the repeat that is a fresh process in one case of `CASES_PER_CONTROL`."""
CASES_PER_CONTROL = 4
"""Of so many cases one has a fresh process in its deterministic phase; all else is forked where
that is safe. A fault of forking is one of a library or of the appliance, not of one case."""
MOST_SESSIONS = 12
"""Sessions of a run."""
WIDEST_BRACKET = 0.005
"""Part of a span by which the host may leave open when the device began and ended it."""
LONGEST_CLOCK_SECONDS = 10.0
"""What all spans of a launch together may be lengthened to, so that the bracket is no wider."""
SEGMENTED = frozenset({"burn_in"})
"""Workloads whose launches are segments of one whole, each with records and checks of its own: an
interruption costs what the segment would have covered, and no ruling, as no time is judged."""
FIRST_BUILT_ALONE = frozenset({"burn_in", "disk_read", "gemm_search"})
"""Workloads whose untimed launch builds with no other launch beside it: there it times calls to
choose among shapes, or writes the file that others are timed on."""
HOT, PLAIN, PROVEN = "hot", "plain loop", "proven loop"
"""Phases of a burn-in: all that it does at full load, and once a launch, to be set side by side,
steps of bare products and the same steps with all of their digests."""
LONG_WARM_UP_SECONDS, LEAST_WARM_UP_STEPS = 10.0, 3
LONG_BLOCK_SECONDS, LEAST_BLOCK_STEPS = 60.0, 20


def is_warm(protocol: Protocol, num_steps: int, passed_ns: int) -> bool:
    """Whether so many steps in so many nanoseconds are a warm-up."""
    is_long = passed_ns >= LONG_WARM_UP_SECONDS * 1e9 and num_steps >= LEAST_WARM_UP_STEPS
    has_time = passed_ns >= protocol.warmup_seconds * 1e9
    return has_time and (is_long or num_steps >= protocol.warmup_steps)


def may_step_ahead(launch: Launch, case: Case) -> bool:
    """Whether a launch may make its first step before it begins, beside the end of another.

    A repeat times nothing. In others the first step must be one that no block counts, as those with
    a number of steps or a target do, and none of inference, whose steps are all alike.
    """
    is_counted = case.steps is not None or case.evaluate_every or case.scenario
    return launch.is_repeat or not (is_counted or case.workload in SEGMENTED)


def may_stand_by(launch: Launch, before: Launch, case_before: Case) -> bool:
    """Whether the process of a launch may wait, its device set up, while one before it is timed.

    Both are timed: an untimed one has what shows how much its case holds, and a repeat times
    nothing that a wait could be beside. Nothing waits beside a segment of a burn-in.
    """
    return launch.is_timed and before.is_timed and case_before.workload not in SEGMENTED


def median_ns(warmed_ns: Sequence[int]) -> int | None:
    """What a step of a warm-up typically took, in nanoseconds; the upper of two in the middle."""
    return sorted(warmed_ns)[len(warmed_ns) // 2] if warmed_ns else None


def block_steps(protocol: Protocol, step_ns: int | None) -> int:
    """Least steps of a block after a warm-up of which a step typically took so long."""
    if step_ns is None:
        return protocol.block_steps
    filling = math.ceil(LONG_BLOCK_SECONDS * 1e9 / max(1, step_ns))
    return min(protocol.block_steps, max(LEAST_BLOCK_STEPS, filling))


def warm_up_seconds(protocol: Protocol, step_seconds: float) -> float:
    """What a warm-up takes of steps of one length."""
    filling = math.ceil(LONG_WARM_UP_SECONDS / max(1e-9, step_seconds))
    steps = min(protocol.warmup_steps, max(LEAST_WARM_UP_STEPS, filling))
    return max(protocol.warmup_seconds, steps * step_seconds)


def block_seconds(protocol: Protocol, step_seconds: float) -> float:
    """What a block takes of steps of one length."""
    steps = block_steps(protocol, round(step_seconds * 1e9))
    return max(protocol.block_seconds, steps * step_seconds)
