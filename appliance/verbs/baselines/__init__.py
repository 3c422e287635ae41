"""The verbs of `bench baseline`: measured figures from signed runs, and what they are worth.

Runs are read and refused, their levels estimated, margins stated, a criteria file drafted. How a
figure is then judged by is not here but in `judging/`.
"""
