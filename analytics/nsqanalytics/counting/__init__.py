"""The figures of readings, computed with NumPy over the readings of many series at once.

These functions run in Python processes of Spark's, so no module here imports Spark. Each is given whole series, in one
table or in a part of a stream, and knows nothing of how Spark distributes them (nsqanalytics/transforms).
"""
