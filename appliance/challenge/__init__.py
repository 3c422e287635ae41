"""A buyer's challenge and the attempts at it: requests, receipts, their ledger and their windows.

Above planning and signing: what is asked names a plan, and what is answered is signed.
"""
