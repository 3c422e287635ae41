"""Language models: building, decoding, generation, and how far two answers part."""
