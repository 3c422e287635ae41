"""Constants of a launch that the child measures by and the verifier holds its records against."""

REPEATED_INPUT_BOUND = 0.1
"""Part of a step's time that repeating its input may save, after MLPerf's audit TEST04."""
NUM_CLOCK_SPANS = 3
"""Spans of work over which a launch compares its clocks; one alone may be disturbed."""
NUM_EMPTY_BLOCKS, EMPTY_BLOCK_STEPS = 5, 32
"""Blocks of steps that do nothing, and steps of each, that show what timing a step costs."""
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
HOT, PLAIN, PROVEN = "hot", "plain loop", "proven loop"
"""Phases of a burn-in: all that it does at full load, and once a launch, to be set side by side,
steps of bare products and the same steps with all of their digests."""
