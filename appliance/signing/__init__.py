"""Keys and envelopes: DSSE statements, PDF signatures, and attachments of pages.

What a statement says of a run is not known here.
"""
