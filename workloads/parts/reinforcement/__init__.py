"""Reinforcement learning: environments, rollouts, programs under JAX, and RLHF.

Policies, their losses and updates in float64, and the branches that a simulated step may take. Rows
and their parameters stand in `workloads/`.
"""
