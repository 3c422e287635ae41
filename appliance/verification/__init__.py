"""The numbered checks of a bundle.

The plan against its suite, launches against the plan, the verdict derived again. Raises or
returns; writes nothing.
"""
