"""The version of the appliance, in one place."""

VERSION = "0.3.0"
