"""The command line that tells random stories, each from a seed that repeats it."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable


class Violation(AssertionError):
    """A check of a story failed. The text names the seed, and what is failed."""


def run_stories(description: str, default_count: int, tell: Callable[[int, Counter[str]], None]) -> int:
    """Call ``tell`` with each seed and the counts of all stories; print the counts and the seeds of its Violations.

    ``default_count``: the number of stories without ``--stories``. Returns the exit status.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--stories", type=int, default=default_count, metavar="N", help=f"how many (default: {default_count:,})"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the first; each next one is one more")
    arguments = parser.parse_args()
    began, failed, counts = time.monotonic(), list[int](), Counter[str]()
    for seed in range(arguments.seed, arguments.seed + arguments.stories):
        try:
            tell(seed, counts)
        except Violation as violation:
            failed.append(seed)
            print(violation, flush=True)
    print(
        f"{arguments.stories:,} stories from seed {arguments.seed}, {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    )
    print(f"{len(failed)} failed a check: {failed}" if failed else "all passed")
    return 1 if failed else 0
