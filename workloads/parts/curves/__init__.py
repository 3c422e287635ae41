"""Recorded loss curves: bands, how a run follows one, and what a right run may vary in."""
