"""Whether what was recorded can have been measured: times by a clock, readings of a device.

Of lines of a journal alone, whatever was planned. Raises or returns; writes nothing.
"""
