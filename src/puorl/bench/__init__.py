"""Settings, runs, records and tables."""
