"""Keys and envelopes: DSSE statements, PDF signatures, attachments of pages.

Keys are made, read and shown here, and bytes are signed and checked. What a statement says of a run
is not known here, nor whom to trust.
"""
