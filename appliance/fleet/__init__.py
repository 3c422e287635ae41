"""A fleet's campaign from its plan to the last verdict, with Slurm as the engine.

What is done is not stored here: a node is done when a verified bundle of it under its challenge is
in the campaign's folder, and what is under way is the scheduler's to say. Collecting the bundles of
a fleet and showing them is not here.
"""
