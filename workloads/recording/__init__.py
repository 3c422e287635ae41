"""A program of its own that records loss curves and trajectories into workloads/bands.

Nothing of the product imports it.
"""
