"""Qualifying a device: which rows are made in which order, what they showed, and the page of it.

Observations are grown from journals, and memory and times are expected by them. Nothing is judged
or signed here, and no launch is made: the runner does that.
"""
