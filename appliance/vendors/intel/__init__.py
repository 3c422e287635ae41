"""Intel's cards, by sysfs and their tool. Nothing else knows the words of these drivers."""
