"""One folder a vendor, and what they share.

The Vendor protocol, how containers see devices, and the registry that makes a vendor by name.
Words of a vendor stay below this folder, and no reading is judged in it.
"""
