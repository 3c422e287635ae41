"""`python -m appliance` is `bench`."""

from appliance.cli.main import main

main()
