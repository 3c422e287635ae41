"""Rulings: pure functions of evidence and criteria, and the only place where pass is spelled.

No file is read and no clock is asked.
"""
