"""The Django project: settings, ASGI, Celery, and the ``nsq`` command.

It imports nothing, because ``manage.py nsq brokerd`` imports this package and must not load Django or Celery.
"""
