"""What workloads share, grouped by what it serves.

Nothing here is a workload, and nothing here knows the clock.
"""
