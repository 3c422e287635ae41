"""Files, strictly read and safely written.

Suites, criteria, devices, orders, the journal, the bundle. What a file means for a ruling is not
decided here.
"""
