"""The Django project: settings, ASGI, Celery, and the ``nsq`` command.

Imports nothing on purpose. ``manage.py nsq brokerd`` passes through this package and must not pay for Django or Celery.
"""
