"""The side of the container that is outside.

The engine, its options, preflight and the rows of doctor. The engine's SDK is imported in one
module only, and nothing here is part of a run's evidence.
"""
