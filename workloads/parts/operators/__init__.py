"""Single operators: the families, their inputs, and the rules that hold their outputs.

A rule says what float64 or an integer reference allows. Which operators are in a row stands in
`workloads/op_*.py`.
"""
