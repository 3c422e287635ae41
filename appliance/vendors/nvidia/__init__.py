"""NVIDIA's devices, by their management library and the kernel's log.

Imports of that library stay inside functions.
"""
