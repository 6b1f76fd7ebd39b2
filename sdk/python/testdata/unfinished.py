"""A store whose author stopped early."""

from hardpoint_plugin import Store, serve


class Half(Store):
    name, version = "half", "1"

    def open(self):
        self.pairs = {}

    def get(self, key):
        return self.pairs.get(key)

    def close(self):
        self.pairs = {}


serve(Half)
