"""The verbs of the program, each joining rooms below.

Options are values here, and what people read is made above.
"""
