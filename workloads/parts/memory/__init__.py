"""Memory under test: digests, patterns, chains of products, streams, copies and disks.

Checksums that locate a wrong row, and what a mismatch is taken for. How long a burn-in lasts is its
row's affair.
"""
