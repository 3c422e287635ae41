"""Options to values, errors to messages and exit codes, progress to the terminal.

Nothing is decided here.
"""
