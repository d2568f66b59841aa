"""The registry: an nsqlookupd, with which nsqds register topics and which consumers query for the nsqds of a topic."""
