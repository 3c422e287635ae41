"""Qualifying a device: which rows are made in which order, what they showed, and the page of it."""
