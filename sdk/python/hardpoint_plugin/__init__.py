"""Plugins of a Hardpoint broker, written in Python.

    from hardpoint_plugin import Allocator, serve

    class Dealt(Allocator):
        name, version = "dealt", "1.0.0"

        def allocate(self, request):
            return [q % len(request.members) for q in range(len(request.queues))]

    if __name__ == "__main__":
        serve(Dealt)
"""

from . import errors
from ._serve import serve
from .allocate import Allocator
from .storage import Store

__all__ = ["Allocator", "Store", "errors", "serve"]
