"""The SQLite store, in a process with a child in a session of its own, which lives on with all that it had open."""

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
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()  # the host ends those that are in the group of its plugin
            os.write(tell, b"x")
            time.sleep(600)
            os._exit(0)
        os.read(ready, 1)
        with open(note, "w") as f:
            f.write(str(child))


if __name__ == "__main__":
    serve(Forks)
