"""What every workload is: its four methods, its facts, and what a launch hands to it.

Mixins have what only some need (targets, hooks, events). No workload, no input and no reference is
here, and nothing knows how steps are timed.
"""
