"""What Django documents about task backends, checked on its own backend and on ours, and what ours adds.

``manage.py test shop --pattern contract.py`` runs it, with a broker. No worker runs: ``Runner`` runs a task in the
test's thread, as a worker does in one of its own.
"""

from __future__ import annotations

import json
import os
import urllib.request
from datetime import datetime, timedelta
from urllib.parse import urlencode

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core import checks
from django.db import IntegrityError, transaction
from django.test import SimpleTestCase, TestCase, override_settings
from django.utils import timezone
from django_tasks import TaskResultStatus, task, task_backends
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started
from shop import tasks

from nsqtasks.models import TaskRecord
from nsqtasks.records import Claimed, Gone, Later
from nsqtasks.runner import Runner

OPTIONS = {"nsqd_tcp_addresses": [os.environ["NSQD"]]}


def nsqd(method, path, **query):
    """Send a request to the broker."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://{os.environ['NSQD_HTTP']}{path}?{urlencode(query)}", method=method)
    with opener.open(request, timeout=60) as answer:
        return answer.read()


def topics():
    """The topics of the broker: (depth, deferred) of a channel that is created here, by topic."""
    found = {}
    for topic in json.loads(nsqd("GET", "/stats", format="json"))["topics"]:
        nsqd("POST", "/channel/create", topic=topic["topic_name"], channel="look")
        stats = json.loads(nsqd("GET", "/stats", format="json", topic=topic["topic_name"], channel="look"))
        [channel] = stats["topics"][0]["channels"]
        found[topic["topic_name"]] = (channel["depth"], channel["deferred_count"])
    return found


class Contract:
    """The behaviour of every backend. ``alias`` is its name in TASKS, ``run_task(result)`` runs what was enqueued."""

    def enqueued(self, function, *args, **kwargs):
        with self.captureOnCommitCallbacks(execute=True):
            result = function.using(backend=self.alias).enqueue(*args, **kwargs)
        return self.run_task(result)

    def test_a_task_that_returns_is_successful(self):
        before = timezone.now()
        result = self.enqueued(tasks.add, 1, right=2)
        self.assertEqual((result.status, result.return_value, result.errors), (TaskResultStatus.SUCCESSFUL, 3, []))
        self.assertTrue(result.is_finished)
        times = [before, result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
        self.assertEqual(times, sorted(times))
        self.assertEqual((result.args, result.kwargs, result.backend), ([1], {"right": 2}, self.alias))
        self.assertEqual((result.attempts, len(result.worker_ids), len(result.id)), (1, 1, 32))
        self.assertEqual(result.task.func, tasks.add.func)

    def test_a_coroutine_function_is_a_task(self):
        self.assertEqual(self.enqueued(tasks.add_later, "a", "b").return_value, "ab")

    def test_a_task_is_enqueued_from_a_coroutine(self):
        with self.captureOnCommitCallbacks(execute=True):
            result = async_to_sync(tasks.add.using(backend=self.alias).aenqueue)(3, 4)
        self.assertEqual(self.run_task(result).return_value, 7)

    def test_a_task_takes_its_context(self):
        result = self.enqueued(tasks.attempt, "word")
        self.assertEqual(result.return_value, [1, result.id, "word"])

    def test_a_task_that_raises_has_failed_with_a_traceback(self):
        result = self.enqueued(tasks.fail, "out of paper")
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        [error] = result.errors
        self.assertIs(error.exception_class, ValueError)
        self.assertIn("in fail", error.traceback)
        self.assertTrue(error.traceback.rstrip().endswith("ValueError: out of paper"))
        with self.assertRaisesMessage(ValueError, "Task failed"):
            result.return_value  # noqa: B018

    def test_sys_exit_ends_the_task_only(self):
        [error] = self.enqueued(tasks.leave).errors
        self.assertIs(error.exception_class, SystemExit)

    def test_none_is_a_return_value(self):
        result = self.enqueued(tasks.returns, "nothing")
        self.assertEqual((result.status, result.return_value), (TaskResultStatus.SUCCESSFUL, None))

    def test_a_return_value_without_a_json_form_fails_the_task(self):
        [error] = self.enqueued(tasks.returns, "set").errors
        self.assertIs(error.exception_class, TypeError)

    def test_arguments_become_json(self):
        self.assertEqual(self.enqueued(tasks.add, (1, 2), [b"3"]).return_value, [1, 2, "3"])

    def test_arguments_without_a_json_form_are_refused(self):
        with self.assertRaises(TypeError):
            tasks.add.using(backend=self.alias).enqueue({1}, 2)
        self.assertEqual(TaskRecord.objects.count(), 0)

    def test_invalid_tasks_are_refused(self):
        cases = {
            "Queue 'letters' is not valid for backend.": {"queue_name": "letters"},
            "priority must be a whole number between -100 and 100.": {"priority": 101},
        }
        for text, changes in cases.items():
            with self.subTest(text), self.assertRaisesMessage(InvalidTaskError, text):
                tasks.add.using(backend=self.alias, **changes)
        with self.assertRaisesMessage(InvalidTaskError, "Task function must be defined at a module level."):
            task(lambda: None, backend=self.alias)

    def test_signals_are_sent(self):
        heard = []

        def hear(sender, task_result, signal, **kwargs):
            names = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}
            heard.append((names[signal], sender, task_result.id, str(task_result.status)))

        for signal in (task_enqueued, task_started, task_finished):
            signal.connect(hear)
            self.addCleanup(signal.disconnect, hear)
        result = self.enqueued(tasks.add, 1, 1)
        sender = type(task_backends[self.alias])
        states = [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]
        self.assertEqual(heard, [(name, sender, result.id, state) for name, state in states])


class ImmediateBackendTests(Contract, TestCase):
    """The framework's own backend, which shows that the tests above are the framework's contract."""

    alias = "immediate"

    def run_task(self, result):
        return result


class NSQTests(TestCase):
    """A backend on an empty broker. Tasks are published where the test lets a transaction commit."""

    alias = "default"

    def setUp(self):
        for topic in json.loads(nsqd("GET", "/stats", format="json"))["topics"]:
            nsqd("POST", "/topic/delete", topic=topic["topic_name"])
        self.backend = task_backends[self.alias]
        self.records = self.backend.records

    def run_task(self, result, worker="worker"):
        self.assertIsNone(Runner(self.backend, worker).run(result.id))
        result.refresh()
        return result

    def change(self, result, **values):
        TaskRecord.objects.filter(pk=result.id).update(**values)


class NSQBackendContractTests(Contract, NSQTests):
    """Our backend has the contract."""


class NSQBackendTests(NSQTests):
    """What our backend has beyond the contract."""

    def test_results_are_read_from_anywhere(self):
        result = tasks.add.enqueue(1, 2)
        again = tasks.add.get_result(result.id)
        self.assertEqual((again, again.status), (result, TaskResultStatus.READY))
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            again.return_value  # noqa: B018
        self.run_task(result)
        async_to_sync(again.arefresh)()
        self.assertEqual(again.return_value, 3)
        self.assertEqual(async_to_sync(tasks.add.aget_result)(result.id).return_value, 3)
        with self.assertRaises(TaskResultMismatch):
            tasks.fail.get_result(result.id)
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result("unknown")

    def test_a_task_is_published_when_the_transaction_commits(self):
        with self.captureOnCommitCallbacks(execute=True):
            result = tasks.add.enqueue(1, 2)
            self.assertEqual(topics(), {})
            self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual(topics(), {"tasks.default": (1, 0)})
        self.assertIsNotNone(TaskRecord.objects.get().published_at)

    def test_a_task_of_a_transaction_that_is_rolled_back_is_gone(self):
        rolled_back = self.captureOnCommitCallbacks(execute=True)
        with rolled_back, self.assertRaises(IntegrityError), transaction.atomic():
            tasks.add.enqueue(1, 2)
            raise IntegrityError
        self.assertEqual((topics(), TaskRecord.objects.count()), ({}, 0))

    def test_each_queue_has_a_topic_for_each_level_of_priority(self):
        with self.captureOnCommitCallbacks(execute=True):
            for queue, priority in (("default", 1), ("default", 99), ("default", -1), ("emails", 0), ("emails", -100)):
                tasks.add.using(queue_name=queue, priority=priority).enqueue(1, 2)
        expected = {"tasks.default.high": 2, "tasks.default.low": 1, "tasks.emails": 1, "tasks.emails.low": 1}
        self.assertEqual(topics(), {topic: (depth, 0) for topic, depth in expected.items()})
        self.assertEqual({each.priority for each in TaskRecord.objects.all()}, {1, 99, -1, 0, -100})

    def test_a_task_with_run_after_is_deferred(self):
        due = timezone.now() + timedelta(minutes=10)
        with self.captureOnCommitCallbacks(execute=True):
            result = tasks.add.using(run_after=due).enqueue(1, 2)
        self.assertEqual(topics(), {"tasks.default": (0, 1)})
        self.assertEqual(tasks.add.get_result(result.id).task.run_after, due)
        delay = Runner(self.backend, "worker").run(result.id)
        self.assertTrue(timedelta(minutes=9) < delay <= timedelta(minutes=10), delay)
        self.change(result, run_after=timezone.now())
        self.assertEqual(self.run_task(result).return_value, 3)

    def test_a_deferral_beyond_the_brokers_limit_is_published_with_the_limit(self):
        with self.captureOnCommitCallbacks(execute=True):
            tasks.add.using(run_after=timezone.now() + timedelta(days=400)).enqueue(1, 2)
        self.assertEqual(topics(), {"tasks.default": (0, 1)})

    def test_run_after_needs_a_time_zone(self):
        with self.assertRaisesMessage(InvalidTaskError, "run_after must be an aware datetime."):
            tasks.add.using(run_after=datetime(2030, 1, 1))

    def test_values_that_a_database_refuses_are_refused(self):
        for value in (float("nan"), float("inf"), "a\0b", {"\0": 1}, "\ud800"):
            with self.subTest(repr(value)), self.assertRaisesMessage(ValueError, "cannot be stored as JSON"):
                tasks.add.enqueue(value, 1)
        self.assertEqual(self.enqueue_and_run(tasks.add, "\\u0000", "é😀").return_value, "\\u0000é😀")
        for kind in ("nan", "nul"):
            [error] = self.enqueue_and_run(tasks.returns, kind).errors
            self.assertEqual(error.exception_class_path, "nsqtasks.errors.UnusableValue")

    def test_a_traceback_with_nul_is_stored(self):
        [error] = self.enqueue_and_run(tasks.fail_unprintably).errors
        self.assertIn("ValueError: a\\0b\\ud800", error.traceback)

    def enqueue_and_run(self, function, *args):
        return self.run_task(function.enqueue(*args))

    def test_a_task_that_runs_is_not_run_by_another_worker(self):
        result = tasks.add.enqueue(1, 2)
        first = self.records.claim(result.id, "first")
        self.assertIsInstance(first, Claimed)
        second = self.records.claim(result.id, "second")
        self.assertIsInstance(second, Later)
        self.assertTrue(timedelta(0) < second.delay <= self.backend.settings.lease)
        result.refresh()
        self.assertEqual((result.status, result.worker_ids), (TaskResultStatus.RUNNING, ["first"]))

    def test_two_claims_of_one_moment_do_not_both_succeed(self):
        """Both read the row before either changes it."""
        result = tasks.add.enqueue(1, 2)
        read_by_first, read_by_second = TaskRecord.objects.get(), TaskRecord.objects.get()
        self.assertIsInstance(self.records.take(read_by_first, "first"), Claimed)
        self.assertIsInstance(self.records.take(read_by_second, "second"), Later)
        result.refresh()
        self.assertEqual(result.worker_ids, ["first"])

    def test_a_task_of_a_worker_that_is_gone_runs_again(self):
        result = tasks.attempt.enqueue("word")
        lost = self.records.claim(result.id, "lost").record
        self.change(result, lease_until=timezone.now() - timedelta(seconds=1))
        self.run_task(result, "second")
        self.assertEqual((result.return_value[0], result.worker_ids), (2, ["lost", "second"]))
        self.assertFalse(self.records.succeed(lost, "late"), "a worker whose claim is over stored its result")
        result.refresh()
        self.assertEqual(result.return_value[0], 2)
        self.assertEqual(self.records.renew([lost]), {result.id})

    def test_renewing_extends_the_lease(self):
        result = tasks.add.enqueue(1, 2)
        record = self.records.claim(result.id, "worker").record
        soon = timezone.now() + timedelta(seconds=1)
        self.change(result, lease_until=soon)
        self.assertEqual(self.records.renew([record]), set())
        self.assertGreater(TaskRecord.objects.get().lease_until, soon)
        self.records.succeed(record, 3)
        self.assertEqual(self.records.renew([record]), set(), "a finished task is reported as lost")

    def test_a_task_that_ends_its_workers_fails_in_the_end(self):
        result = tasks.add.enqueue(1, 2)
        for attempt in range(self.backend.settings.max_attempts):
            self.assertIsInstance(self.records.claim(result.id, f"worker {attempt}"), Claimed)
            self.change(result, lease_until=timezone.now() - timedelta(seconds=1))
        self.run_task(result)
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 5))
        [error] = result.errors
        self.assertEqual(error.exception_class.__name__, "WorkerLost")
        self.assertIn("worker 0, worker 1", error.traceback)

    def test_a_finished_task_is_not_run_again(self):
        result = self.run_task(tasks.add.enqueue(1, 2))
        self.assertIsInstance(self.records.claim(result.id, "second"), Gone)
        self.run_task(result)
        self.assertEqual(result.attempts, 1)

    def test_a_task_whose_function_is_gone_fails(self):
        for path in ("shop.tasks.removed", "removed.tasks.add", "shop.tasks.not_a_task"):
            result = tasks.add.enqueue(1, 2)
            self.change(result, task_path=path)
            Runner(self.backend, "worker").run(result.id)
            record = TaskRecord.objects.get(pk=result.id)
            self.assertEqual(record.status, TaskResultStatus.FAILED)
            self.assertIn(path, record.errors[0]["traceback"])

    def test_what_is_to_be_published(self):
        now = timezone.now()
        long_ago = now - self.backend.settings.republish_after - timedelta(minutes=1)
        cases = {
            "committed a moment ago": ({"published_at": None}, False),
            "never published": ({"published_at": None, "enqueued_at": long_ago}, True),
            "published": ({"published_at": now}, False),
            "lost by nsqd": ({"published_at": long_ago}, True),
            "lost while it ran": ({"published_at": long_ago, "status": "RUNNING", "lease_until": long_ago}, True),
            "running": ({"published_at": long_ago, "status": "RUNNING", "lease_until": now + timedelta(1)}, False),
            "finished": ({"published_at": long_ago, "status": "FAILED"}, False),
            "due later": ({"published_at": long_ago, "run_after": now + timedelta(1)}, False),
        }
        names = {}
        for name, (values, _) in cases.items():
            result = tasks.add.enqueue(1, 2)
            self.change(result, **values)
            names[result.id] = name
        found = {names[each.pk] for each in self.records.unpublished(now)}
        self.assertEqual(found, {name for name, (_, is_due) in cases.items() if is_due})

    def test_old_results_are_deleted(self):
        old, new, ready = (tasks.add.enqueue(1, 2) for _ in range(3))
        self.run_task(old)
        self.run_task(new)
        self.change(old, finished_at=timezone.now() - timedelta(days=8))
        self.assertEqual(self.records.delete_old(timezone.now(), timedelta(days=7)), 1)
        self.assertEqual({each.pk for each in TaskRecord.objects.all()}, {new.id, ready.id})


class AdminTests(TestCase):
    """Django's admin shows tasks and changes none."""

    def setUp(self):
        self.client.force_login(User.objects.create_superuser("admin"))
        self.result = tasks.fail.using(queue_name="emails").enqueue("<b>out of paper</b>")
        Runner(task_backends["default"], "worker").run(self.result.id)
        self.page = f"/admin/nsqtasks/taskrecord/{self.result.id}/"

    def test_tasks_are_listed_filtered_and_found(self):
        for query in ("", "?status=FAILED", "?queue_name=emails", f"?q={self.result.id}", "?q=shop.tasks"):
            self.assertContains(self.client.get(f"/admin/nsqtasks/taskrecord/{query}"), self.result.id)
        self.assertNotContains(self.client.get("/admin/nsqtasks/taskrecord/?status=READY"), self.result.id)

    def test_the_page_of_a_task_has_its_traceback(self):
        page = self.client.get(f"{self.page}change/")
        self.assertContains(page, "ValueError: &lt;b&gt;out of paper&lt;/b&gt;")
        self.assertNotContains(page, 'name="_save"')

    def test_nobody_changes_tasks(self):
        for method, path in (
            (self.client.get, "/admin/nsqtasks/taskrecord/add/"),
            (self.client.post, f"{self.page}change/"),
            (self.client.post, f"{self.page}delete/"),
        ):
            self.assertEqual(method(path, {"status": "READY", "post": "yes"}).status_code, 403, path)
        self.assertEqual(TaskRecord.objects.get().status, "FAILED")


class CheckTests(SimpleTestCase):
    """``manage.py check`` says what is wrong and what to do."""

    def found(self, **changes):
        entry = {"BACKEND": "nsqtasks.backend.NSQBackend", "OPTIONS": OPTIONS, **changes}
        with override_settings(TASKS={"default": entry}):
            return [(each.id, each.msg, each.hint) for each in checks.run_checks() if each.id.startswith("nsqtasks")]

    def test_correct_settings_have_no_problem(self):
        self.assertEqual(self.found(), [])
        every = {
            "lookupd_http_addresses": ["127.0.0.1:4161"],
            "lease": timedelta(seconds=30),
            "keep_results": None,
            "client": {"tls_v1": True},
            "max_attempts": 1,
        }
        self.assertEqual(self.found(OPTIONS={**OPTIONS, **every}), [])

    def test_each_problem_is_named(self):
        cases = [
            ({"OPTIONS": {}}, "E002", "'nsqd_tcp_addresses' is missing", '["127.0.0.1:4150"]'),
            ({"OPTIONS": None}, "E004", "OPTIONS is not a dictionary", "nsqd_tcp_addresses"),
            ({"OPTIONS": {**OPTIONS, "adress": 1}}, "E003", "There is no option 'adress'", "The options are channel"),
            ({"OPTIONS": {"nsqd_tcp_addresses": "host:1"}}, "E004", "is 'host:1'", "Set it to a list"),
            ({"OPTIONS": {"nsqd_tcp_addresses": ["host"]}}, "E004", "is ['host']", "'host' is invalid"),
            ({"OPTIONS": {**OPTIONS, "lease": 60}}, "E004", "'lease' is 60", "timedelta(seconds=3) or more"),
            ({"OPTIONS": {**OPTIONS, "channel": "a b"}}, "E004", "'channel' is 'a b'", "1 to 64"),
            ({"OPTIONS": {**OPTIONS, "max_attempts": 0}}, "E004", "'max_attempts' is 0", "1 or more"),
            ({"OPTIONS": {**OPTIONS, "client": {"tls": True}}}, "E004", "'client' is", "Remove 'tls'. The options"),
            ({"OPTIONS": {**OPTIONS, "client": {"deflate_level": 20}}}, "E004", "'client' is", "deflate_level ! 20"),
            ({"OPTIONS": {**OPTIONS, "database": "tasks"}}, "E006", "'database' is 'tasks'", "one of default"),
            ({"QUEUES": ["a b"]}, "E005", "the topic 'tasks.a b.high'", "1 to 64"),
            ({"QUEUES": ["a", "a.high"]}, "E005", "share the topic 'tasks.a.high'", "Rename one"),
        ]
        for changes, number, text, hint in cases:
            with self.subTest(changes):
                [(found, message, advice)] = self.found(**changes)
                self.assertEqual(found, f"nsqtasks.{number}")
                self.assertTrue(message.startswith('TASKS["default"]: '), message)
                self.assertIn(text, message)
                self.assertIn(hint, advice)

    def test_a_backend_that_is_not_used_is_a_warning(self):
        [(found, _, advice)] = self.found(BACKEND="django_tasks.backends.dummy.DummyBackend")
        self.assertEqual(found, "nsqtasks.W001")
        self.assertIn('"BACKEND": "nsqtasks.backend.NSQBackend"', advice)
