"""The parent of a run: one child process a launch, supervised to its end, with readings beside it.

It writes the journal and imports no framework.
"""
