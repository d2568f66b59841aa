"""Nothing: what is known of the cluster stands in Redis, and what was done to it in ``accounts``' audit trail."""
