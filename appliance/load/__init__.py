"""How a device was loaded and what held it back, of records and readings alone."""
