"""The clusters of one platform: their declarations, and the current cluster of a request, task or process."""
