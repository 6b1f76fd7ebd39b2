"""Stores: the log of a broker over an ordered key-value backend.

The author writes the backend ([Store]); the package keeps records, the index of
queues, the key index and the marks of the log in it, and speaks with the host.
"""

import itertools
import threading
import time

from hardpoint.storage.v1 import storage_pb2, stream_pb2

from . import errors
from ._log_store import LogStore
from ._plugin import Kind, Plugin, failure

_ATTACH_TIME = 10.0  # seconds within which the stream of an instance comes


class Store(Plugin):
    """Base of stores: a subclass has a name, a version and the methods below. They
    are called by one thread at a time, reads too: a backend needs no snapshots, and
    one call that takes long holds up all others. Keys and values are bytes, and keys
    sort as bytes do."""

    kind, contract = "storage", "storage/1"
    _methods = ("open", "apply", "get", "scan", "sync", "close")

    #: Whether what apply did survives kill -9 of the process without sync.
    survives_process_death = False

    @classmethod
    def facets(cls):
        return ["KeyIndex", "RawLog", "Retention"]

    def open(self):
        """Takes what the backend needs. self.dir exists and is locked."""
        raise NotImplementedError

    def apply(self, operations):
        """Does all operations in order, or none of them: (key, value) sets a key,
        (key, end, None) removes all keys from key to before end. errors.Full says
        that nothing was done; any other exception fails the store."""
        raise NotImplementedError

    def get(self, key):
        """The value of a key, or None."""
        raise NotImplementedError

    def scan(self, start, end, reverse):
        """Yields the pairs with start <= key < end, ascending, or descending when
        reverse. It may be left before its end."""
        raise NotImplementedError

    def sync(self):
        """Returns when everything applied survives power loss. After an exception it
        is not called again."""
        raise NotImplementedError

    def close(self):
        """Releases what open took."""
        raise NotImplementedError


class Instance:
    """One store of a host. Its lock is held for each call: the stream and the calls
    of control come from different threads."""

    def __init__(self, store, params):
        self.log = LogStore(store, params)
        self.lock = threading.Lock()
        self.attached = threading.Event()
        self.ended = False

    def start(self):
        if not self.attached.wait(_ATTACH_TIME):
            raise errors.NotRunning("the stream of the host did not come")
        with self.lock:
            # A host that gave up its Start may end the instance before the call is here; nobody would close the store.
            if self.ended:
                raise errors.NotRunning("storage is not running: the host shut it down already")
            self.log.start()

    def shutdown(self):
        with self.lock:
            self.ended = True
            self.log.shutdown()

    def calls(self, requests):
        """Does the calls of the stream one after the other."""
        for r in requests:
            kind = r.WhichOneof("call")
            if kind == "cancel":
                continue  # no call waits for anything
            until = time.monotonic() + r.timeout / 1e9 if r.timeout else None
            out = []
            with self.lock:
                try:
                    # Time may have passed in wait for the lock.
                    if until is not None and time.monotonic() >= until:
                        raise errors.DeadlineExceeded("context deadline exceeded")
                    answer = _CALLS[kind](self.log, r)
                except Exception as e:
                    answer = stream_pb2.DataResponse(failure=failure(e))
                    if kind in _CHANGES:
                        answer.done.marks.CopyFrom(self.log.marks())
                out = self.log.take_events()
            for event in out:
                event.id = r.id if kind in _CHANGES else 0
                yield event
            answer.id = r.id
            yield answer


def _done(log):
    event, published = log.take_own()
    return stream_pb2.DataResponse(done=stream_pb2.Done(marks=log.marks(), event=event, published=published))


def _change(call):
    def do(log, r):
        call(log, r)
        return _done(log)

    return do


def _chunk(call):
    return lambda log, r: stream_pb2.DataResponse(chunk=call(log, r))


_CALLS = {
    "append": _change(lambda log, r: log.append(r.append)),
    "publish": _change(lambda log, r: log.publish(r.publish.up_to)),
    "truncate": _change(lambda log, r: log.truncate(r.truncate.at)),
    "reset": _change(lambda log, r: log.reset(r.reset.first, r.reset.ends)),
    "expire": _change(lambda log, r: log.expire(r.expire.first)),
    "drop": _change(lambda log, r: log.drop(r.drop.queues)),
    "sync": _change(lambda log, r: log.sync(r.sync.end)),
    "read": _chunk(lambda log, r: log.read(r.read)),
    "get": _chunk(lambda log, r: log.get(r.get.at)),
    "read_log": _chunk(lambda log, r: log.read_log(r.read_log.__getattribute__("from"), r.read_log.most)),
    "offsets": lambda log, r: stream_pb2.DataResponse(ends=log.offsets(r.offsets.queries)),
}
_CHANGES = frozenset(("append", "publish", "truncate", "reset", "expire", "drop"))


class Service(Kind):
    """hardpoint.storage.v1.Storage, with the stream in place of data sockets."""

    name = "hardpoint.storage.v1.Storage"

    def __init__(self, classes):
        super().__init__(classes)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._instances = {}
        self.data.__func__.stream = True

    def methods(self):
        pb = storage_pb2
        return {
            "Probe": (self._answer(pb.ProbeResponse, self.probe), pb.ProbeRequest),
            "Open": (self._answer(pb.OpenResponse, self.open), pb.OpenRequest),
            "Start": (self._answer(pb.StartResponse, self.start), pb.StartRequest),
            "Shutdown": (self._answer(pb.ShutdownResponse, self.shutdown), pb.ShutdownRequest),
            "State": (self._answer(pb.StateResponse, self.state), pb.StateRequest),
            "Segments": (self._answer(pb.SegmentsResponse, self.segments), pb.SegmentsRequest),
            "Find": (self._answer(pb.FindResponse, self.find), pb.FindRequest),
            "Data": (self.data, stream_pb2.DataRequest),
        }

    @staticmethod
    def _answer(response, call):
        def do(r, _):
            try:
                return response(**call(r))
            except Exception as e:
                return response(failure=failure(e))

        return do

    def _make(self, r):
        cls = self.lookup(r.plugin)
        return Instance(cls(cls._configure(r.config), r.params.settings), r.params)

    def _instance(self, number):
        with self._lock:
            if number in self._instances:
                return self._instances[number]
        raise errors.NotRunning("storage is not running")

    @staticmethod
    def _capabilities(instance):
        store = instance.log.kv
        return storage_pb2.Capabilities(facets=sorted(store.facets()), survives_process_death=store.survives_process_death)

    def probe(self, r):
        return {"capabilities": self._capabilities(self._make(r))}

    def open(self, r):
        i = self._make(r)
        with self._lock:
            number = next(self._numbers)
            self._instances[number] = i
        return {"instance": number, "capabilities": self._capabilities(i)}

    def start(self, r):
        i = self._instance(r.instance)
        i.start()
        with i.lock:
            return {"state": i.log.state()}

    def shutdown(self, r):
        self._end(r.instance)
        return {}

    def _end(self, number):
        with self._lock:
            i = self._instances.pop(number, None)
        if i is not None:
            i.shutdown()

    def state(self, r):
        i = self._instance(r.instance)
        with i.lock:
            return {"state": i.log.state()}

    def segments(self, r):
        i = self._instance(r.instance)
        with i.lock:
            return {"segments": i.log.segments()}

    def find(self, r):
        i = self._instance(r.instance)
        with i.lock:
            return {"at": i.log.find(r)}

    def data(self, requests, context):
        first = next(requests)
        i = self._instance(first.attach.instance)
        if i.attached.is_set():
            raise errors.Unsupported(f"instance {first.attach.instance} has its stream already")
        i.attached.set()
        try:
            yield from i.calls(requests)
        finally:
            # Nobody can use it any more; its directory is free for the next one. A
            # host that shut it down before has taken it out.
            self._end(first.attach.instance)

    def close(self):
        with self._lock:
            left, self._instances = self._instances, {}
        for i in left.values():
            i.shutdown()
