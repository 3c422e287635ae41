"""Runs side by side: which cases pair, and a mixed model of their differences.

Pages on it are made in reports/.
"""
