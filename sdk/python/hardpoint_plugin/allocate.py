"""Allocators: which member of a consumer group gets which message queue."""

import itertools
import threading
from collections.abc import Iterable
from typing import NamedTuple

from hardpoint.allocate.v1 import allocate_pb2

from . import errors
from ._plugin import Kind, Plugin, failure


class Queue(NamedTuple):
    """A message queue of the topic to be shared."""

    topic: str
    broker: str
    id: int
    zone: str  # of its broker; "" when unknown


class Member(NamedTuple):
    """A consumer of the group."""

    client_id: str
    zone: str
    weight: int  # relative, at least 1
    owned: tuple  # indexes into queues: what it has now


class Request(NamedTuple):
    """One generation of a group. Queues are sorted by topic, broker, id; members by
    client id."""

    group: str
    generation: int
    queues: list
    members: list


class Allocator(Plugin):
    """Base of allocators: a subclass has a name, a version and the method allocate."""

    kind, contract = "allocate", "allocate/1"
    _methods = ("allocate",)

    def allocate(self, request):
        """Returns for each queue the index of the member that gets it, -1 for nobody;
        or a pair of that and a list with a few words for each queue, why.

        It is pure: the same request gives the same answer on every broker. It is
        called by several threads at once.
        """
        raise NotImplementedError


def _request(r):
    text = r.strings
    queues = [Queue(text[t], text[b], i, text[z]) for t, b, i, z in zip(r.topic, r.broker, r.id, r.zone)]
    members = [Member(m.client_id, text[m.zone], m.weight or 1, tuple(m.owned)) for m in r.members]
    seen = set()
    if not members:
        raise errors.RequestError(f'invalid allocation request: group "{r.group}" has no members')
    for m in members:
        if m.client_id in seen:
            raise errors.RequestError(f'invalid allocation request: client id "{m.client_id}" is twice in group "{r.group}"')
        seen.add(m.client_id)
        if m.owned and max(m.owned) >= len(queues):
            raise errors.RequestError(f'invalid allocation request: member "{m.client_id}" owns queue {max(m.owned)} of {len(queues)}')
    return Request(r.group, r.generation, queues, members)


def _response(answer):
    owner, why = answer if isinstance(answer, tuple) else (answer, ())
    if not isinstance(owner, Iterable):
        raise TypeError(f"allocate returned {owner!r}; it must be a list with the index of a member, or -1, for each queue")
    owner = list(owner)
    for queue, member in enumerate(owner):
        if not hasattr(member, "__index__"):
            raise TypeError(f"allocate gave queue {queue} to {member!r}; it must be the index of a member, or -1")
    out = allocate_pb2.AllocateResponse(owner=owner)
    if why:
        reasons = {text: i for i, text in enumerate(dict.fromkeys(why))}
        out.reasons.extend(reasons)
        out.why.extend(reasons[text] for text in why)
    return out


class Service(Kind):
    """hardpoint.allocate.v1.Allocate."""

    name = "hardpoint.allocate.v1.Allocate"

    def __init__(self, classes):
        super().__init__(classes)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._open = {}

    def methods(self):
        return {
            "Open": (self.open, allocate_pb2.OpenRequest),
            "Allocate": (self.allocate, allocate_pb2.AllocateRequest),
            "Close": (self.close_one, allocate_pb2.CloseRequest),
        }

    def open(self, r, _):
        try:
            cls = self.lookup(r.plugin)
            allocator = cls(cls._configure(r.config), r.settings)
        except Exception as e:
            return allocate_pb2.OpenResponse(failure=failure(e))
        with self._lock:
            number = next(self._numbers)
            self._open[number] = allocator
        return allocate_pb2.OpenResponse(instance=number)

    def allocate(self, r, _):
        try:
            allocator = self._open.get(r.instance)
            if allocator is None:
                raise errors.Unavailable(f"plugin is not available: the process has no open allocator {r.instance}")
            return _response(allocator.allocate(_request(r)))
        except Exception as e:
            return allocate_pb2.AllocateResponse(failure=failure(e))

    def close_one(self, r, _):
        with self._lock:
            self._open.pop(r.instance, None)
        return allocate_pb2.CloseResponse()
