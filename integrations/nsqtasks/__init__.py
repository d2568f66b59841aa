"""Django Tasks on NSQ.

``BACKEND: "nsqtasks.backend.NSQBackend"`` in Django's ``TASKS`` stores each task in the database, publishes its id to
NSQ when the transaction commits, and ``manage.py nsq_worker`` runs it. ``docs/tasks.md`` is the guide.
"""
