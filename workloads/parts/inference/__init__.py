"""Inference: sessions, what is served, outputs that are checked later."""
