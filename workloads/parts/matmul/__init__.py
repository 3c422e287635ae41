"""Matrix products: operands, references by rows and the bound on their error.

Dense, TF32, 8-bit and integer forms. Other operators are in `operators/`.
"""
