"""Numbers and where they come from.

Formats and their unit roundoff, inputs, initial weights, checksums, sizes and counts of operations.
No layer and no loss is known here.
"""
