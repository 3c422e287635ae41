"""Options to values, errors to messages and exit codes, progress to the terminal.

The one place where an error becomes a message and an exit code. Options are joined with their
defaults and handed to `verbs/` as values; nothing is decided, measured or written here.
"""
