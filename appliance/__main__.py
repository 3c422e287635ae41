"""`python -m appliance` is `bench`."""

from appliance.cli import main

main()
