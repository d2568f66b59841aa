"""No models: the state of the cluster is in Redis, and the record of actions in the audit trail of ``accounts``."""
