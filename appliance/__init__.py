"""The appliance: everything but the workloads and the pages.

Rooms stand on floors, and a module imports lower floors only; tests/test_floors.py holds the
order. At the root stand the errors, the version and the program's entry.
"""
