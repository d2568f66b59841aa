"""The cluster's HTTP API."""
