"""Registers the Parquet files of an archive as Iceberg tables in a catalog, without copying them."""
