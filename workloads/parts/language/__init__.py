"""Language models: building, decoding, generation, and how far two answers part.

Decoders, caches, hashed attention and the divergence of two distributions. What a served row
reports is in `inference/`, the training step in `training/`.
"""
