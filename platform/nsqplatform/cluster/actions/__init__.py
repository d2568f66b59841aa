"""What operators change in the cluster."""
