"""Load generators and comparisons: throughput, latency and processor time of the servers, clients and reports.

``python -m bench`` prints the table that docs/benchmarks.md explains. ``python -m bench.kill9`` kills a brokerd
repeatedly under load and checks its guarantees; ``python -m bench.soak`` does this with a cluster and the client.
"""
