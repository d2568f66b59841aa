"""History: figures over time, of the last hour in Redis, and of older times in files."""
