"""The version of the appliance, and when it was released, in one place."""

VERSION = "0.8.0"
RELEASED = "2026-11-25"
"""The day of the release, as CHANGELOG.md has it: no run of this version can be older."""
