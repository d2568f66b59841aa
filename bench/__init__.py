"""Load generators and comparisons: the throughput of a brokerd and its processor time.

``python -m bench`` prints the table, which docs/benchmarks.md explains. ``python -m bench.kill9`` kills a brokerd
repeatedly under load and checks its guarantees.
"""
