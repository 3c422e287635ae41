"""The verbs of the program, each joining rooms below.

A verb is a function of values: it opens folders, asks, runs, judges and writes by calling them.
Options and messages are made above, in `cli/`; rules and measurements below.
"""
