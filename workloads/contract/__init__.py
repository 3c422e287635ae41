"""What every workload is: its four methods, its facts, and what a launch hands to it."""
