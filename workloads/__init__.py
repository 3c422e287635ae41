"""One file a workload: what a step does and how its output is checked.

What several share is in parts/, the contract in contract/; suites, data sets and recorded curves
are data.
"""
