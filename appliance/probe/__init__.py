"""What the node is on any day, and how it is today.

Asks vendors and the kernel, touches no device, and knows what is redacted. Nothing is judged here.
"""
