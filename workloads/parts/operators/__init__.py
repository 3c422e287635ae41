"""Single operators: the families, their inputs, and the rules that hold their outputs."""
