"""Samples to numbers.

Estimates with intervals, group-sequential limits, tails, drift, steady state. Pure functions of
arrays; no criterion and no file is known here.
"""
