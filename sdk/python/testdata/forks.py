"""The SQLite store, in a process with a child that lives on when it has ended, with all that it had open."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../examples/python-store"))

from hardpoint_plugin import serve
from store import SQLite


class Forks(SQLite):
    def apply(self, operations):
        super().apply(operations)
        note = os.path.join(self.dir, "child")
        if os.path.exists(note):
            return
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        with open(note, "w") as f:
            f.write(str(child))


if __name__ == "__main__":
    serve(Forks)
