"""Numbers and where they come from.

Formats and their unit roundoff, inputs, initial weights, checksums, sizes.
"""
