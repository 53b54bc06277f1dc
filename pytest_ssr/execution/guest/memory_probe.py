"""Record in a file, when the process ends, the most memory that it or one of its children has used, in KiB."""

from __future__ import absolute_import

import atexit
import os
import resource

_FILE, _PROCESS = os.environ.get("SSR_MEMORY", ""), os.getpid()


def _record():
    if os.getpid() != _PROCESS:
        return
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with open(_FILE, "w") as file:
        file.write(str(max(peaks)))


if _FILE:
    atexit.register(_record)
