"""Spark transforms: pure functions from DataFrame to DataFrame, with no clock, path or session of their own."""
