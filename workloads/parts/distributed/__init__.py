"""Ranks: how they meet, what they exchange, and which of them erred."""
