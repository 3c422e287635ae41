"""Inputs that any machine can draw again: a counter-based generator and exact maps to values."""
