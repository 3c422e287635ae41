"""Reinforcement learning: environments, rollouts, programs under JAX, and RLHF."""
