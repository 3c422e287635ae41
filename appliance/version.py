"""The version of the appliance, in one place."""

VERSION = "0.7.0"
