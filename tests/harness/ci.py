"""Whether the tests run in continuous integration, which must not skip any."""

import os

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
