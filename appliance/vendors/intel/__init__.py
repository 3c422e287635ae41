"""Intel's cards, by the kernel's files and, where it is installed, their tool.

Names and facts of cards, counters, telemetry and the kernel's log in the words of these drivers,
which nothing else knows. What counts as healthy is not decided here.
"""
