"""What will run, decided before anything runs.

Cases, placement, seeds, samples to check, coverage. Pure: devices, suite and criteria in, a plan
out. No device is asked, no file is read and no framework is imported.
"""
