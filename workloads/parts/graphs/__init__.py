"""Graphs: molecules, message passing, generative flow networks."""
