"""The view of a whole bundle: page 1, requirements, what is open, evidence, all chapters joined.

What stands in a chapter of its own (cases, health, judging, the machine) is made in the room below.
"""
