"""``python distributions/requirements.py NAME`` prints the requirements of a distribution that are other projects'.

Those of our distributions that it requires are included, for an image's layer that changes only with them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def requirements(name: str, extra: str = "") -> list[str]:
    """Return the requirements as lines of pip's, sorted, those of an extra included.

    Raises FileNotFoundError for an unknown distribution, and KeyError for an unknown extra.
    """
    project = tomllib.loads((FOLDER / name.removeprefix("nsq-") / "pyproject.toml").read_text())["project"]
    found = set()
    for line in [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else [])]:
        ours = re.fullmatch(r"(nsq-\w+)(?:\[(\w+)\])?==.*", line)
        found |= {*requirements(ours[1], ours[2] or "")} if ours else {line}
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
