"""Recorded loss curves: bands, how a run follows one, and what a right run may vary in.

The curves themselves are data in `workloads/bands/`, and `workloads/recording` makes them.
"""
