"""Processes that the programs under test started.

A process may end between two questions about it, and stays a zombie until its parent has asked for its status:
psutil raises NoSuchProcess for the one and ZombieProcess, a subclass, for some questions about the other. Both count
as ended here.
"""

import psutil


def is_gone(process: psutil.Process) -> bool:
    """Whether the process has ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def descendants(pid: int, *, name: str = "", word: str = "") -> list[psutil.Process]:
    """The running processes below ``pid``, those of this name or with this word on their command line where given."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [each for each in found if not is_gone(each) and _is_asked_for(each, name, word)]


def _is_asked_for(process: psutil.Process, name: str, word: str) -> bool:
    try:
        return (not name or process.name() == name) and (not word or word in process.cmdline())
    except psutil.NoSuchProcess:
        return False
