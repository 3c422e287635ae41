"""Graphs: molecules, message passing, generative flow networks.

Layers and their float64 references, and molecules that are drawn from the seed. The training step
is not here but in `training/`.
"""
