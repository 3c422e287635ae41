"""A buyer's challenge and the attempts at it: requests, receipts, their ledger and their windows.

Above planning and signing, because what is asked names a plan and what is answered is signed. How
bounds tighten with the attempt's number is not here but in `planning/`.
"""
