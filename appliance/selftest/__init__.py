"""Injected faults and what became of them.

Real processes that go wrong, and whole runs on a virtual clock. Shipped, so that a buyer can test
the judge. The workloads that go wrong are not here but in `workloads/injected`.
"""
