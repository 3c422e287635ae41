"""Constants of a launch that the child measures by and the verifier holds its records against."""

REPEATED_INPUT_BOUND = 0.1
"""Part of a step's time that repeating its input may save, after MLPerf's audit TEST04."""
NUM_CLOCK_SPANS = 3
"""Spans of work over which a launch compares its clocks; one alone may be disturbed."""
