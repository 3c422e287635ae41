"""The plan as a schedule: what of a suite is worth most within so many minutes.

Pure: a plan's cases with the times that are known of them go in, and the rows that are run, with
how many launches each, come out. What a launch is worth to a ruling is not decided here.
"""
