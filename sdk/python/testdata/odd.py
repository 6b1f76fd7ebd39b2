"""Plugins that tests of the package need: they do what the configuration says."""

import logging

from hardpoint_plugin import Allocator, Store, errors, serve


class Odd(Allocator):
    name, version = "odd", "2"
    defaults = {"size": 3, "ratio": 0.5, "what": ""}

    @classmethod
    def validate(cls, config):
        if config["size"] < 1:
            raise ValueError(f"size is {config['size']}, it must be at least 1")

    def allocate(self, request):
        what = self.config["what"]
        if what == "raise":
            raise KeyError("no such drawer")
        if what == "refuse":
            raise errors.RequestError("not on Tuesdays")
        if what == "names":
            return [request.members[0].client_id for _ in request.queues]
        if what == "nothing":
            return None
        if what == "say":
            print("printed by the plugin")
            self.logger.debug("not wanted")
            self.logger.warning("told by the plugin", extra={"size": self.config["size"]})
            logging.getLogger("library").info("told by a library")
        if what == "count":
            self.count(request)
        if what == "why":
            return [0] * len(request.queues), [f"queue {q.id} of {q.broker}" for q in request.queues]
        return [-1] * len(request.queues)


    def count(self, request):
        """Counts under each kind of instrument, and does what none should."""
        for queue in request.queues:
            self.meter.counter("odd_queues_total", "Queues asked about.", broker=queue.broker).add()
        self.meter.histogram("odd_queues", "Queues of a request.").observe(0.001)
        drop = self.meter.gauge("odd_members", "Members.", lambda: 1 / 0)
        drop()
        drop()
        self.meter.gauge("odd_members", "Members.", lambda: len(request.members))
        self.meter.gauge("odd_members", "Members.", lambda: 40)
        self.meter.gauge("odd_broken", "None.", lambda: 1 / 0)
        self.meter.counter("odd_queues", "Not this one: it is a histogram.").add()
        try:
            self.meter.counter("odd_queues_total", "Queues asked about.", broker="broker-a").add(-1)
        except ValueError:
            return
        raise AssertionError("a counter shrank")


class Drawer(Store):
    """In memory; fails when a record says so."""

    name, version = "drawer", "1"

    def open(self):
        self.pairs = {}

    def apply(self, operations):
        for op in operations:
            if len(op) == 2 and b"fill the disk" in op[1]:
                raise errors.Full("the drawer is full")
            if len(op) == 2 and b"break the disk" in op[1]:
                raise OSError("the drawer is stuck")
        for op in operations:
            if len(op) == 2:
                self.pairs[op[0]] = op[1]
            else:
                for key in [k for k in self.pairs if op[0] <= k < op[1]]:
                    del self.pairs[key]

    def get(self, key):
        return self.pairs.get(key)

    def scan(self, start, end, reverse):
        for key in sorted((k for k in self.pairs if start <= k < end), reverse=reverse):
            yield key, self.pairs[key]

    def sync(self):
        pass

    def close(self):
        self.pairs = {}


if __name__ == "__main__":
    serve(Odd, Drawer)
