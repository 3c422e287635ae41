"""A burn-in: number formats in turn, lanes that work at once, exact operands, mismatches, coverage.

What is digested and how memory is tested is the room memory's affair.
"""
