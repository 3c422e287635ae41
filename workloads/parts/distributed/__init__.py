"""Ranks: how they meet, what they exchange, and which of them erred.

Groups, shards and the tensors that are exchanged, with the checks that name a rank. Which processes
are started is the worker's affair.
"""
