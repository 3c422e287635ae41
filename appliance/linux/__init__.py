"""What the kernel says of a machine, in files: processors, cgroups, sensors, buses, its log.

Readers take a folder as root, so that tests read recorded machines. Nothing here knows a vendor.
"""
