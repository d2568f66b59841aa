"""The units of plain numbers that are times, for names that do not end in one: ``deadline: Seconds``.

Such a name is given by a protocol or an interface, or is a point in time. A point is Unix time, or one of a monotonic
clock where it is compared with that clock.
"""

from typing import TypeAlias

Seconds: TypeAlias = float
WholeSeconds: TypeAlias = int
Milliseconds: TypeAlias = int
Nanoseconds: TypeAlias = int
