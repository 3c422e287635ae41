"""A training step and its judgement.

State, reference in float64, error bounds, optimizers, audits of large models. What is trained
stands in other rooms.
"""
