"""The version of the appliance, in one place."""

VERSION = "0.8.0"
