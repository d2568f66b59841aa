"""``python -m nsqanalytics run JOB --archive … --output … --parameter window=1h …``; also what ``spark-submit`` runs.

Progress is written as JSON lines to standard output, Spark's log to standard error. The exit status is 0 for success, 1
for a failed run and 2 for invalid arguments.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import sys
import threading

from nsqanalytics import failures
from nsqanalytics.class_archive import create_class_archive
from nsqanalytics.iceberg.catalog import CATALOG_VARIABLE
from nsqanalytics.job_list import JOBS, find_job
from nsqanalytics.locations import Locations
from nsqanalytics.notebook import VIEWS, make_views
from nsqanalytics.parameters import BadParameter, Given, declared, duration, summary
from nsqanalytics.progress import Progress
from nsqanalytics.run import own_output, own_session, run
from nsqanalytics.session import end_with_java, spark_session
from nsqanalytics.warm_session import IDLE_S, MOST_JOBS, serve


def main(argv: list[str] | None = None) -> int:
    """Run one command. A failed job is reported as a ``failed`` line, and with the same text on standard error."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "list":
        for job in JOBS.values():
            print(f"{job.name}: {job.description}")
            for name, parameter in declared(job.parameters).items():
                print(f"  {name}={parameter.default}  {summary(parameter)}")
        return 0
    if arguments.command == "sql":
        return _sql(arguments)
    if arguments.command == "classes":
        return create_class_archive(in_background=arguments.in_background)
    if arguments.command == "serve":
        return serve(arguments.idle_s, arguments.jobs)
    try:
        job = find_job(arguments.job)
        parameters = job.checked(_given(arguments.parameter))
    except BadParameter as error:
        print(f"analytics: {error}", file=sys.stderr)
        return 2
    if arguments.exit_with_parent:
        threading.Thread(target=_exit_at_end_of_input, name="parent", daemon=True).start()
    progress = Progress(own_output())
    place = Locations(arguments.archive, arguments.output, arguments.namespace)
    return 0 if run(job, place, parameters, progress, own_session(job, progress)) else 1


def _sql(arguments: argparse.Namespace) -> int:
    """Print the results of queries over the views, given as arguments or on standard input, as tables or CSV."""
    try:
        period = duration(arguments.period)
    except ValueError as error:
        print(f"analytics: --period: {error}", file=sys.stderr)
        return 2
    try:
        failures.check_archive(arguments.archive)
        with spark_session("nsq sql") as spark:
            from pyspark.logger import PySparkLogger

            # Spark logs an invalid query with the JVM's stack trace. Its message is printed below.
            PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
            make_views(spark, arguments.archive, period)
            queries = arguments.query or sys.stdin.read().split(";")
            for query in filter(str.strip, queries):
                answer = spark.sql(query)
                if arguments.csv:
                    writer = csv.writer(sys.stdout)
                    writer.writerow(answer.columns)
                    writer.writerows(answer.toLocalIterator())
                else:
                    answer.show(arguments.rows, truncate=False)
                sys.stdout.flush()
    except Exception as error:
        print(f"analytics: {failures.explained(error)[1]}", file=sys.stderr)
        return 1
    return 0


def _exit_at_end_of_input() -> None:
    """Exit when the process at the other end of standard input has ended, even by kill -9. Java ends too."""
    while os.read(0, 4096):
        pass
    end_with_java()


def _given(pairs: list[str]) -> Given:
    given: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise BadParameter(f"--parameter {pair!r} is not of the form name=value")
        if name in given:
            raise BadParameter(f"--parameter {name} is given twice: {given[name]!r} and {value!r}")
        given[name] = value
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nsqanalytics", description="Spark reports over the archive.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the jobs and their parameters, with defaults and permitted values")
    views = "; ".join(f"{name}: {meaning}" for name, meaning in VIEWS.items())
    sql = commands.add_parser("sql", help="query the archive with Spark SQL", epilog=f"views: {views}")
    sql.add_argument(
        "query", nargs="*", help="SQL; without it, queries are read from standard input, separated by semicolons"
    )
    sql.add_argument("--archive", required=True, help="root of the archive: a path or a URI that Spark reads")
    sql.add_argument("--period", default="7d", help="period of the views, up to now (default 7d)")
    sql.add_argument("--rows", type=int, default=50, help="maximum number of rows of a table (default 50)")
    sql.add_argument("--csv", action="store_true", help="print all rows as CSV")
    classes = commands.add_parser("classes", help="create the archive of Spark's classes that sessions use")
    classes.add_argument("--in-background", action="store_true", help="at the lowest priority, and by one process only")
    warm = commands.add_parser("serve", help="run jobs one after another in one session, as the platform requests them")
    warm.add_argument(
        "--idle-s", type=float, default=IDLE_S, help=f"seconds without a job after which it ends (default {IDLE_S:g})"
    )
    warm.add_argument("--jobs", type=int, default=MOST_JOBS, help="jobs after which it ends (default %(default)s)")
    run = commands.add_parser("run", help="run a job")
    run.add_argument("job", help=f"one of {', '.join(JOBS)}")
    run.add_argument("--archive", required=True, help="root of the archive: a path or a URI that Spark reads")
    run.add_argument(
        "--output", required=True, help="folder for the Parquet files; a successful run replaces its contents"
    )
    run.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the job, as shown by the command list; repeatable",
    )
    run.add_argument(
        "--namespace",
        default="nsq",
        help=f"of the archive's tables in the Iceberg catalog that {CATALOG_VARIABLE} names (default nsq)",
    )
    run.add_argument("--exit-with-parent", action="store_true", help="stop when standard input ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
