"""Settings that all tests share: property tests draw the same examples every time."""

from hypothesis import settings

settings.register_profile("bench", deadline=None, derandomize=True, database=None, max_examples=40)
settings.load_profile("bench")
