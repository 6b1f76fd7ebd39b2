"""The log over a key-value backend: what core/storage/storekit is in Go.

Keys begin with a letter, numbers are big-endian, so that bytes sort as numbers do:

    i                     identity: version, segment size, log id
    s                     state: first, tail, published, last store time, next queue number
    q topic 0x00 id(4)    ends of a queue: number(4), min, max
    r position(8)         the bytes of a record
    u number(4) offset(8) a unit: position, size, tags code, store time
    k hash(4) ^position(8) an entry of the key index, newest first: store time
    x position(8)         the hashes of a record's keys
    p position(8)         units and keys of a batch that is not published: its end, then
                          hardpoint.storage.v1.Append without records

Nothing is derived from records but their sizes and store times.
"""

import fcntl
import os
import secrets
import threading
from struct import Struct
from typing import NamedTuple

from hardpoint.storage.v1 import storage_pb2, stream_pb2

from . import errors

_VERSION = 1
_BLANK = 8  # bytes of the head of a blank, left free behind every record
_MIN_RECORD = 91
_BORN_V6 = 1 << 4
_MAGIC_BLANK = 0xCBD43194

_STATE = Struct(">qqqqI")
_ENDS = Struct(">Iqq")
_UNIT = Struct(">qiqq")
_UNIT_KEY = Struct(">Iq")
_U32 = Struct(">I")
_I32 = Struct(">i")
_I64 = Struct(">q")
_HASH_KEY = Struct(">iQ")
_ALL = (1 << 64) - 1
_EXPIRE_STEP = 4096

_PB = stream_pb2

_locks = threading.Lock()
_locked = set()  # the lock files that stores of this process hold, see _identity


def _identity(path):
    """What tells a file from all others, None when there is none."""
    try:
        st = os.stat(path)
    except FileNotFoundError:
        return None
    return st.st_dev, st.st_ino


class Unit(NamedTuple):
    topic: str
    queue: int
    at: int
    size: int
    offset: int
    tags_code: int
    store_time: int

    def message(self):
        return _PB.Unit(
            queue=_PB.Queue(topic=self.topic, id=self.queue), at=self.at, size=self.size, offset=self.offset,
            tags_code=self.tags_code, store_time=self.store_time,
        )  # fmt: skip


class _Queue:
    __slots__ = ("max", "min", "number")

    def __init__(self, number, low, high):
        self.number, self.min, self.max = number, low, high


class _Pending:
    """A batch that waits for publish; host: it came over this stream."""

    __slots__ = ("at", "end", "host", "keys", "units")

    def __init__(self, at, end, units, keys, host):
        self.at, self.end, self.units, self.keys, self.host = at, end, units, keys, host

    def put(self):
        m = _PB.Append(at=self.at, units=[u.message() for u in self.units])
        m.keys.extend(_PB.Key(hash=h, at=at, store_time=ms) for h, at, ms in self.keys)
        return b"p" + _I64.pack(self.at), _I64.pack(self.end) + m.SerializeToString()


def _units(messages):
    return [Unit(u.queue.topic, u.queue.id, u.at, u.size, u.offset, u.tags_code, u.store_time) for u in messages]


def _keys(messages):
    return [(k.hash, k.at, k.store_time) for k in messages]


def _after(letter):
    return bytes((letter[0] + 1,))


def _record_key(at):
    return b"r" + _I64.pack(at)


def _unit_key(number, offset):
    return b"u" + _UNIT_KEY.pack(number, offset)


def _hash_key(value, at):
    return b"k" + _HASH_KEY.pack(value, at ^ _ALL)


def _queue_key(topic, queue):
    return b"q" + topic.encode() + b"\x00" + _I32.pack(queue)


def _store_time(record):
    at = 68 if _I32.unpack_from(record, 36)[0] & _BORN_V6 else 56
    return _I64.unpack_from(record, at)[0]


def key_hash(topic, key):
    """Under which the key index keeps a key of a topic."""
    h = 0
    units = (topic + "#" + key).encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    if h >= 1 << 31:
        h = (1 << 32) - h
    return 0 if h == 1 << 31 else h


class LogStore:
    """The store of one instance; not safe for concurrent use."""

    def __init__(self, kv, params):
        self.kv = kv
        self._segment, self._log_id = params.segment, params.log_id
        self._explicit = params.explicit_publish
        self._running, self._failed = False, None
        self._version = self._number = self._term = 0
        self._first = self._published = self._durable = self._tail = self._last = 0
        self._queues, self._segments, self._pending = {}, [], []
        self._lock_file = self._lock_identity = None
        self._events, self._event, self._own = [], 0, (0, 0)

    # What the host is told.

    def state(self):
        m = self.marks()
        return storage_pb2.LogState(
            version=m.version, log_id=self._log_id, segment=self._segment, first=m.first, published=m.published,
            durable=m.durable, tail=m.tail, last_store_time=m.last_store_time,
        )  # fmt: skip

    def marks(self):
        self._version += 1
        return _PB.Marks(
            version=self._version, first=self._first, published=self._published, durable=self._durable, tail=self._tail,
            last_store_time=self._last,
        )  # fmt: skip

    def take_events(self):
        """The events of the call, to be sent before its answer."""
        out, self._events = self._events, []
        return [_PB.DataResponse(event=e) for e in out]

    def take_own(self):
        """Number and position of what was published and came over the stream."""
        out, self._own = self._own, (0, 0)
        return out

    def _tell(self, **what):
        self._event += 1
        self._events.append(_PB.Event(marks=self.marks(), number=self._event, **what))

    def _tell_own(self, up_to):
        self._event += 1
        self._own = self._event, up_to

    # Life.

    def start(self):
        if self._running:
            raise errors.Unsupported("the store runs already")
        if self._segment <= _MIN_RECORD + _BLANK:
            raise errors.Unsupported(f"segments of {self._segment} bytes hold no record")
        self._lock()
        try:
            self.kv.open()
            try:
                self._load()
            except BaseException:
                self.kv.close()
                raise
        except BaseException:
            self._unlock()
            raise
        self._running = True

    def _lock(self):
        if not self.kv.dir:
            return
        os.makedirs(self.kv.dir, exist_ok=True)
        path = os.path.join(self.kv.dir, "lock")
        # A lock of this kind is the process's alone: a child that a plugin forks does not keep it when the process
        # has ended. It does not tell two stores of one process apart, and closing the file anywhere gives it up.
        with _locks:
            if _identity(path) in _locked:
                raise errors.ReadOnly(f"{self.kv.dir} is in use by another store of this process")
            f = open(path, "wb")  # noqa: SIM115
            try:
                fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                f.close()
                raise errors.ReadOnly(f"{self.kv.dir} is in use by another process: {e}") from None
            self._lock_file, self._lock_identity = f, _identity(path)
            _locked.add(self._lock_identity)

    def _unlock(self):
        if self._lock_file:
            with _locks:
                self._lock_file.close()
                _locked.discard(self._lock_identity)
            self._lock_file = None

    def shutdown(self):
        if not self._running:
            return
        self._running, self._pending = False, []
        try:
            if self._failed is None:
                self.kv.sync()
        finally:
            try:
                self.kv.close()
            finally:
                self._unlock()

    def _load(self):
        self._identify()
        value = self.kv.get(b"s")
        if value is not None:
            if len(value) != _STATE.size:
                raise self._corrupt(f"the state has {len(value)} bytes, not {_STATE.size}")
            self._first, self._tail, self._published, self._last, self._number = _STATE.unpack(value)
            self._check()
        for key, value in self.kv.scan(b"q", _after(b"q"), False):
            name = key[1:-5].decode(), _I32.unpack(key[-4:])[0]
            self._queues[name] = _Queue(*_ENDS.unpack(value))
        self._segments = self._find_segments()
        for key, value in self.kv.scan(b"p", _after(b"p"), False):
            m = _PB.Append.FromString(value[8:])
            self._pending.append(_Pending(m.at, _I64.unpack_from(value)[0], _units(m.units), _keys(m.keys), False))
        self.kv.sync()
        if self._lock_file:
            _sync_directory(self.kv.dir)  # the backend's new files are in it
        self._durable = self._tail
        if not self._explicit and self._published < self._tail:
            self._publish(self._tail)

    def _identify(self):
        value = self.kv.get(b"i")
        where = self.kv.dir
        if value is None:
            self._log_id = self._log_id or secrets.token_hex(16)
            self.kv.apply([(b"i", bytes((_VERSION,)) + _I64.pack(self._segment) + self._log_id.encode())])
            return
        if len(value) < 9 or value[0] != _VERSION:
            raise self._corrupt("the identity of the log is unreadable, or of a newer version")
        segment, log_id = _I64.unpack_from(value, 1)[0], value[9:].decode()
        if segment != self._segment:
            raise errors.Identity(f'storage holds another log: "{where}" has segments of {segment} bytes, configured are {self._segment}')
        if self._log_id not in ("", log_id):
            raise errors.Identity(f'storage holds another log: "{where}" holds log "{log_id}", wanted is "{self._log_id}"')
        self._log_id = log_id

    def _check(self):
        end = self._first
        for key, value in self.kv.scan(b"r", _after(b"r"), True):
            end = max(end, _I64.unpack_from(key, 1)[0] + len(value))
            break
        if (
            self._first < 0 or self._first % self._segment or not self._first <= self._published <= self._tail
            or not end <= self._tail <= end + self._segment
        ):  # fmt: skip
            raise self._corrupt(
                f"the state says that the log begins at {self._first}, is published up to {self._published} and ends at "
                f"{self._tail}; its last record ends at {end}"
            )

    def _corrupt(self, reason):
        return errors.Corrupt(self.kv.dir or self.kv.name, 0, reason)

    def _find_segments(self):
        out = []
        for at in range(self._first, self._tail, self._segment):
            times = []
            for reverse in (False, True):
                for _, record in self.kv.scan(_record_key(at), _record_key(at + self._segment), reverse):
                    times.append(_store_time(record))
                    break
            first, last = times or (0, 0)
            out.append([at, min(self._segment, self._tail - at), first, last])
        return out

    # Errors.

    def _may(self, writes):
        if not self._running:
            raise errors.NotRunning("storage is not running")
        if writes and self._failed is not None:
            raise errors.Failed(f"storage has failed: {self._failed}") from self._failed

    def _do(self, what, call):
        """Calls the backend; an exception other than Full fails the store."""
        try:
            return call()
        except errors.Full:
            raise
        except Exception as e:
            if self._failed is None:
                self._failed = e
                f = _PB.Event().failed
                f.text = f"{what}: {e}"
                if isinstance(e, errors.PluginError) and e.code:
                    f.codes.append(e.code)
                self._tell(failed=f)
            raise errors.Failed(f"storage has failed: {what}: {e}") from e

    def _apply(self, what, operations, sync=False):
        self._do(what, lambda: self.kv.apply(operations))
        if sync:
            self._do(what, self.kv.sync)

    def _state(self, **new):
        """The operation that writes the state with some of it changed."""
        values = [new.get(k, getattr(self, "_" + k)) for k in ("first", "tail", "published", "last", "number")]
        return b"s", _STATE.pack(*values)

    # Writing.

    def append(self, b):
        self._may(True)
        records, at, size = b.records, b.at, len(b.records)
        self._place(b, size)
        self._term = b.term
        ops, off, first = [], 0, 0
        last = self._last
        while off < size:
            n = _I32.unpack_from(records, off)[0] if size - off >= _MIN_RECORD else 0
            if not _MIN_RECORD <= n <= size - off:
                raise errors.Unsupported(f"a batch at {at} holds no record at its byte {off} of {size}")
            record = records[off : off + n]
            ops.append((_record_key(at + off), record))
            last = _store_time(record)
            first = first or last
            off += n
        end = at + size
        units, keys = _units(b.units), _keys(b.keys)
        staged = {}
        if self._explicit:
            p = _Pending(at, end, units, keys, True)
            ops += [p.put(), self._state(tail=end, last=last)]
        else:
            self._index(ops, units, keys, staged)
            ops.append(self._state(tail=end, last=last, published=end))
        self._apply("append", ops)
        self._tail, self._last = end, last
        if self._explicit:
            self._pending.append(p)
        else:
            self._queues.update(staged)
            self._published = end
            self._tell_own(end)
        if size:
            self._grow(at, end, first, last)

    def _place(self, b, size):
        if b.term < self._term:
            raise errors.Fenced(f"storage is fenced by a newer term: the batch is of term {b.term}, the store has seen {self._term}")
        tail, seg = self._tail, self._segment
        if b.at != tail and (tail % seg == 0 or b.at != tail + seg - tail % seg):
            raise errors.Gap(f"position does not continue the log: a batch at {b.at}, the tail is {tail}, segments have {seg} bytes")
        if size + _BLANK > seg - b.at % seg:
            raise errors.TooLarge(
                f"record is too large for the log's segments: {size} bytes at {b.at}, where the segment has room for "
                f"{seg - b.at % seg} and its end"
            )

    def _grow(self, at, end, first, last):
        edge = at - at % self._segment
        if not self._segments or self._segments[-1][0] != edge:
            if self._segments:
                self._segments[-1][1] = self._segment
            self._segments.append([edge, 0, first, 0])
        s = self._segments[-1]
        s[1], s[2], s[3] = end - edge, s[2] or first, last

    def _index(self, ops, units, keys, staged):
        """Adds units and keys to a step, and the ends of their queues to staged."""
        for u in units:
            name = u.topic, u.queue
            q = staged.get(name)
            if q is None:
                old = self._queues.get(name)
                if old is None:
                    q = _Queue(self._number, u.offset, u.offset)
                    self._number += 1
                else:
                    q = _Queue(old.number, old.min, old.max)
                staged[name] = q
            if q.min == q.max and u.offset != q.max:
                q.min = q.max = u.offset
            q.max = max(q.max, u.offset + 1)
            ops.append((_unit_key(q.number, u.offset), _UNIT.pack(u.at, u.size, u.tags_code, u.store_time)))
        hashes = {}
        for value, at, ms in keys:
            ops.append((_hash_key(value, at), _I64.pack(ms)))
            hashes[at] = hashes.get(at, b"") + _I32.pack(value)
        ops += [(b"x" + _I64.pack(at), value) for at, value in hashes.items()]
        ops += [self._ends(name, q) for name, q in staged.items()]

    @staticmethod
    def _ends(name, q):
        return _queue_key(*name), _ENDS.pack(q.number, q.min, q.max)

    def publish(self, up_to):
        self._may(True)
        if up_to > self._tail:
            raise errors.Gap(f"position does not continue the log: publish up to {up_to}, the tail is {self._tail}")
        if up_to <= self._published:
            return
        done = self._publish(up_to)
        if all(p.host for p in done):
            self._tell_own(up_to)
        else:
            units = [u.message() for p in done for u in p.units]
            self._tell(published=_PB.Published(up_to=up_to, units=units))

    def _publish(self, up_to):
        """Indexes what waits below a position; returns it."""
        done, rest, ops = [], None, []
        for p in self._pending:
            ops.append((b"p" + _I64.pack(p.at), b"p" + _I64.pack(p.at + 1), None))
            if p.end <= up_to:
                done.append(p)
                continue
            done.append(_below(p, up_to))
            rest = _Pending(up_to, p.end, p.units[len(done[-1].units) :], p.keys[len(done[-1].keys) :], p.host)
            ops.append(rest.put())
            break
        staged = {}
        self._index(ops, [u for p in done for u in p.units], [k for p in done for k in p.keys], staged)
        ops.append(self._state(published=up_to))
        self._apply("publish", ops)
        self._pending[: len(done)] = [rest] if rest else []
        self._queues.update(staged)
        self._published = up_to
        return done

    def sync(self, end):
        self._may(True)
        if end > self._tail:
            raise errors.Gap(f"position does not continue the log: sync up to {end}, the tail is {self._tail}")
        if self._durable < end:
            self._do("sync", self.kv.sync)
            self._durable = self._tail

    # Cutting.

    def truncate(self, at):
        self._may(True)
        if at == self._tail:
            return
        last = self._edge(at)
        below = at < self._published
        ops, changed = [], {}
        if below:
            self._drop_keys(ops, at, self._published)
            for name, q in self._queues.items():
                end = self._search(q, q.min, q.max, lambda u: u[0] >= at)
                if end == q.max:
                    continue
                ops.append((_unit_key(q.number, end), _unit_key(q.number, q.max), None))
                changed[name] = _Queue(q.number, q.min, end) if end > 0 else None
                ops.append(self._ends(name, changed[name]) if end > 0 else self._forget(name))
        ops.append((_record_key(at), _after(b"r"), None))
        ops.append((b"p", _after(b"p"), None))
        pending = [p for p in self._pending if p.end <= at]
        pending += [_below(p, at) for p in self._pending if p.at < at < p.end]
        ops += [p.put() for p in pending]
        published = min(self._published, at)
        ops.append(self._state(tail=at, published=published, last=last))
        self._apply("truncate", ops, sync=True)
        self._pending = pending
        self._tail, self._published, self._durable, self._last = at, published, at, last
        for name, q in changed.items():
            if q:
                self._queues[name] = q
            else:
                del self._queues[name]
        self._segments = self._find_segments()
        if below:
            self._tell(truncated=at)

    def _edge(self, at):
        """Checks that a position is a record's edge; the store time before it."""
        if not self._first <= at <= self._tail:
            raise errors.Gap(f"position does not continue the log: cut at {at}, the log has {self._first} to {self._tail}")
        legal, last = at == self._first or self.kv.get(_record_key(at)) is not None, 0
        for key, record in self.kv.scan(b"r", _record_key(at), True):
            legal = legal or _I64.unpack_from(key, 1)[0] + len(record) == at
            last = _store_time(record)
            break
        if not legal:
            raise errors.Gap(f"position does not continue the log: cut at {at}, where no record begins or ends")
        return last

    def _drop_keys(self, ops, start, end):
        """Adds the removal of the keys of the records of a range; returns how far it
        got in one step."""
        for key, value in self.kv.scan(b"x" + _I64.pack(start), b"x" + _I64.pack(end), False):
            at = _I64.unpack_from(key, 1)[0]
            for i in range(0, len(value), 4):
                k = _hash_key(_I32.unpack_from(value, i)[0], at)
                ops.append((k, k + b"\x00", None))
        ops.append((b"x" + _I64.pack(start), b"x" + _I64.pack(end), None))

    @staticmethod
    def _forget(name):
        key = _queue_key(*name)
        return key, key + b"\x00", None

    def reset(self, first, ends):
        self._may(True)
        if first < 0 or first % self._segment:
            raise errors.Gap(f"position does not continue the log: reset to {first}, segments have {self._segment} bytes")
        ops = [(letter, _after(letter), None) for letter in (b"r", b"u", b"k", b"q", b"x", b"p")]
        queues = {}
        for e in ends:
            q = _Queue(self._number, e.offset, e.offset)
            self._number += 1
            queues[e.queue.topic, e.queue.id] = q
        ops += [self._ends(name, q) for name, q in queues.items()]
        below = min(self._first, first) if self._published > self._first else -1
        ops.append(self._state(first=first, tail=first, published=first, last=0))
        self._apply("reset", ops, sync=True)
        self._first = self._published = self._durable = self._tail = first
        self._last, self._queues, self._segments, self._pending = 0, queues, [], []
        if below >= 0:
            self._tell(truncated=below)

    def expire(self, first):
        self._may(True)
        if not 0 <= first <= self._published or first % self._segment:
            raise errors.Gap(
                f"position does not continue the log: expire below {first}, published is {self._published}, segments have {self._segment} bytes"
            )
        if first <= self._first:
            return
        ops, changed = [], {}
        self._drop_keys(ops, self._first, first)
        for name, q in self._queues.items():
            begin = self._search(q, q.min, q.max, lambda u: u[0] >= first)
            if begin > q.min:
                changed[name] = _Queue(q.number, begin, q.max)
                ops.append((_unit_key(q.number, q.min), _unit_key(q.number, begin), None))
                ops.append(self._ends(name, changed[name]))
        ops.append((_record_key(self._first), _record_key(first), None))
        ops.append(self._state(first=first))
        self._apply("expire", ops)
        self._first = first
        self._queues.update(changed)
        self._segments = [s for s in self._segments if s[0] >= first]
        self._tell(expired=first)

    def drop(self, queues):
        self._may(True)
        ops, gone = [], []
        for m in queues:
            name = m.topic, m.id
            q = self._queues.get(name)
            if q is not None and name not in gone:
                ops += [self._forget(name), (b"u" + _U32.pack(q.number), b"u" + _U32.pack(q.number + 1), None)]
                gone.append(name)
        if gone:
            self._apply("drop", ops)
            for name in gone:
                del self._queues[name]

    def segments(self):
        self._may(False)
        return [storage_pb2.Segment(at=s[0], bytes=s[1], first_store_time=s[2], last_store_time=s[3]) for s in self._segments]

    # Reading.

    def read(self, r):
        self._may(False)
        q = self._queues.get((r.queue.topic, r.queue.id))
        if q is None:
            return _PB.Chunk(status=_PB.NO_MATCHED_LOGIC_QUEUE)
        c = _PB.Chunk(min=q.min, max=q.max)
        if q.max == 0:
            c.status = _PB.NO_MESSAGE_IN_QUEUE
        elif r.offset < q.min:
            c.status, c.next = _PB.OFFSET_TOO_SMALL, q.min
        elif r.offset > q.max:
            c.status, c.next = _PB.OFFSET_OVERFLOW_BADLY, q.max
        elif r.offset == q.max:
            c.status, c.next = _PB.OFFSET_OVERFLOW_ONE, q.max
        else:
            self._gather(r, q, c)
        return c

    def _gather(self, r, q, c):
        tags = frozenset(r.tags)
        count, most = r.hot.count, r.hot.bytes
        units, size, looked, position, missing = [], 0, 0, r.offset, False
        for key, value in self.kv.scan(_unit_key(q.number, r.offset), _unit_key(q.number, q.max), False):
            offset = _UNIT_KEY.unpack_from(key, 1)[1]
            if offset != position:  # a gap: it ends the answer, or is one
                missing = position == r.offset
                if missing:
                    position = offset
                break
            if (count > 0 and len(units) >= count) or (tags and 0 < r.scan <= looked):
                break
            looked += 1
            at, n, code, ms = _UNIT.unpack(value)
            if tags and code not in tags:
                position += 1
                continue
            size += n
            if units and 0 < most < size:
                break
            position += 1
            units.append(Unit(r.queue.topic, r.queue.id, at, n, offset, code, ms))
        c.next = position
        if missing or not looked:
            c.status = _PB.OFFSET_FOUND_NULL
            if not missing:
                c.next = q.max  # nothing but a gap up to the end
            return
        if not units:
            c.status = _PB.NO_MATCHED_MESSAGE
            return
        records = []
        for u in units:
            record = self.kv.get(_record_key(u.at))
            if record is None or len(record) != u.size:
                c.skipped += 1
                continue
            records.append(record)
            c.units.append(u.message())
        c.status = _PB.FOUND if records else _PB.MESSAGE_WAS_REMOVING
        c.records = b"".join(records)

    def get(self, positions):
        self._may(False)
        c, records = _PB.Chunk(), []
        for at in positions:
            u = c.units.add(at=at)
            if not self._first <= at < self._published:
                continue
            record = self.kv.get(_record_key(at))
            if record is not None and at + len(record) <= self._published:
                u.size, u.store_time = len(record), _store_time(record)
                records.append(record)
        c.records = b"".join(records)
        return c

    def offsets(self, queries):
        self._may(False)
        out = _PB.Ends(published=self._published)
        if not queries:
            for (topic, number), q in self._queues.items():
                out.answers.add(queue=_PB.Queue(topic=topic, id=number), known=True, min=q.min, max=q.max)
        for m in queries:
            q = self._queues.get((m.queue.topic, m.queue.id))
            a = out.answers.add(queue=m.queue, known=q is not None)
            if q is None:
                continue
            a.min, a.max = q.min, q.max
            if m.kind == _PB.FIRST_AT:
                a.offset = self._search(q, q.min, q.max, lambda u, m=m: u[3] >= m.time)
            elif m.kind == _PB.LAST_AT:
                a.offset = self._search(q, q.min, q.max, lambda u, m=m: u[3] > m.time)
                if a.offset > q.min:
                    a.offset -= 1
        return out

    def _search(self, q, low, high, beyond):
        """The first offset of a range whose unit is beyond; its end when there is
        none. Where the index has gaps the next unit counts."""
        end = high
        while low < high:
            middle = (low + high) // 2
            yes = True
            for _, value in self.kv.scan(_unit_key(q.number, middle), _unit_key(q.number, end), False):
                yes = beyond(_UNIT.unpack(value))
                break
            if yes:
                high = middle
            else:
                low = middle + 1
        return low

    def find(self, r):
        self._may(False)
        value, out = key_hash(r.topic, r.key), []
        if r.max <= 0 or not self._published:
            return out
        for key, ms in self.kv.scan(_hash_key(value, self._published - 1), b"k" + _U32.pack(value + 1), False):
            at = _HASH_KEY.unpack_from(key, 1)[1] ^ _ALL
            ms = _I64.unpack(ms)[0]
            if len(out) >= r.max or ms < r.__getattribute__("from") or at < self._first:
                break
            if ms <= r.to:
                out.append(at)
        return out

    def read_log(self, start, most):
        self._may(False)
        if not self._first <= start <= self._tail:
            raise errors.Gap(f"position does not continue the log: read at {start}, the log has {self._first} to {self._tail}")
        end = min(self._tail, start + max(most, 0))
        out = bytearray(end - start)
        position = start

        def put(at, data):
            if at < start:
                data, at = data[start - at :], start
            data = data[: max(end - at, 0)]
            out[at - start : at - start + len(data)] = data

        def gap(to):
            if to > position:
                put(position, _I32.pack(to - position) + _U32.pack(_MAGIC_BLANK))

        for key, _ in self.kv.scan(b"r", _record_key(start + 1), True):
            position = _I64.unpack_from(key, 1)[0]  # the record that start lies in, or the one before
            break
        if end > start:
            for key, record in self.kv.scan(_record_key(position), _record_key(end), False):
                at = _I64.unpack_from(key, 1)[0]
                gap(at)
                put(at, record)
                position = at + len(record)
            if position < end:
                gap(position + self._segment - position % self._segment)
        return _PB.Chunk(next=end, records=bytes(out))


def _sync_directory(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _below(p, at):
    """What of a batch ends at or below a position that lies in it."""
    units = [u for u in p.units if u.at + u.size <= at]
    keys = [k for k in p.keys if k[1] < at]
    return _Pending(p.at, at, units, keys, p.host)
