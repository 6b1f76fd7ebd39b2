"""Plugins of a Hardpoint broker, written in Python.

    from hardpoint_plugin import Allocator, serve

    class Dealt(Allocator):
        name, version = "dealt", "1.0.0"

        def allocate(self, request):
            return [q % len(request.members) for q in range(len(request.queues))]

    if __name__ == "__main__":
        serve(Dealt)
"""

import importlib.util
import sys


def _has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its parent
        return False


_MISSING = [module for module in ("grpc", "google.protobuf") if not _has(module)]
if _MISSING:
    raise ImportError(
        f"hardpoint_plugin needs {' and '.join(_MISSING)}, which {sys.executable} does not have: install grpcio and protobuf "
        "for it, or start the plugin with a Python that has them (Debian's packages are those of /usr/bin/python3)"
    )

from . import errors
from ._serve import serve
from .allocate import Allocator
from .storage import Store

__all__ = ["Allocator", "Store", "errors", "serve"]
