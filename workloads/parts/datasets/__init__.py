"""Inputs that are read or drawn.

Pinned files, pickles read strictly, texts, images, sounds and moving pictures made of numbers.
"""
