"""Inference: sessions, what is served, outputs that are checked later.

ONNX sessions and the nodes that ran elsewhere, weights drawn again for a reference, requests and
their answers. Language models and their decoding are in `language/`.
"""
