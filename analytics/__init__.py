"""What the cluster did: the archive's schema and writer, Spark jobs over it, and the runner."""
