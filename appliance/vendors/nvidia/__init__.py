"""NVIDIA's devices, by their management library and the kernel's log.

Facts, links, telemetry and Xid errors, and what each driver is known to lack. Imports of the
library stay inside functions. What counts as healthy is not decided here.
"""
