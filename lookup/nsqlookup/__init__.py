"""The registry (nsqlookupd): nsqds register their topics with it, and consumers query it for the nsqds of a topic."""
