"""Load generators and comparisons: what a brokerd does in a second, and what that costs it.

``python -m bench`` prints the table; docs/benchmarks.md says how to read it. ``python -m bench.kill9`` kills a brokerd
again and again under load and checks that it kept its promises.
"""
