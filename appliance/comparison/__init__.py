"""Runs side by side: which cases pair, and a mixed model of their differences.

Pure functions of two or more bundles. Their pages are made in `reports/`, and no verdict is changed
by what they say.
"""
