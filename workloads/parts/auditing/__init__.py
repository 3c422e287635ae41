"""Audits of a training step: every call of a module held to float64 on drawn rows of a batch.

What is watched on the device, what is drawn of it, and what float64 makes of one call alone. Which
step is audited, and what is judged of it, is in `parts/training`.
"""
