"""AMD's devices, by their library, their tool and sysfs.

Imports of that library stay inside functions.
"""
