"""AMD's devices, by their management library, their tool and sysfs.

Probing, telemetry, faults and who uses a card, of whichever of the three sources answers. Imports
of the library stay inside functions. What counts as healthy is not decided here.
"""
