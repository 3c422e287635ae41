"""Diffusion and flow models built from their library's classes, and their sizes.

Which classes are taken, and how FLUX's networks and schedule are followed in float64. The rows
themselves stand in `workloads/`.
"""
