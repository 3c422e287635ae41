"""A run as it goes on, read from its folder: the unfinished journal, its state, and its lines.

Nothing here judges or writes. What a run is at is said by its plan and by the lines that its
journal has so far; the folder may be mounted into the container that makes the run.
"""
