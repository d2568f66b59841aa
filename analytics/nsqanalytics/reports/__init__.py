"""The reports. Each reads the archive, applies transforms, checks the columns and replaces its result."""
