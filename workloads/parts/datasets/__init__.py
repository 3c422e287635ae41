"""Inputs that are read or drawn.

Pinned files, pickles read strictly, texts, images, sounds and moving pictures made of numbers. What
a model makes of them is not known here, and nothing is downloaded.
"""
