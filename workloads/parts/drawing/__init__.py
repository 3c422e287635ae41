"""Inputs drawn on the device: the generator in each library's integers, and what keeps account."""
