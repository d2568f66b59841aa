"""``python forked.py`` reads a JSON list of command lines of ``nsq``, and runs each in a process of its own.

The processes are forks of one that has imported all subcommands, because most of the time of a short command is spent
on imports. Prints a JSON list of ``[exit status, standard output, standard error]``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from typing import NamedTuple

from nsqcommand.command import main
from nsqcommand.subcommands import SUBCOMMANDS


class Answer(NamedTuple):
    """What a command printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


def run(words: list[str]) -> Answer:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = 70
            try:
                status = main(words)
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return Answer(status, *texts)


if __name__ == "__main__":
    for subcommand in SUBCOMMANDS.values():
        subcommand.load()
    print(json.dumps([run(words) for words in json.load(sys.stdin)]))
