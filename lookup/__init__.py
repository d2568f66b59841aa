"""The registry: an nsqlookupd, where each nsqd says what it holds and consumers ask who holds a topic."""
