"""Diffusion and flow models built from their library's classes."""
