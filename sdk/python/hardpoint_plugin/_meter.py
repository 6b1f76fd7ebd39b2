"""What a plugin counts, for the host's /metrics. It is what Settings.Meter is in Go.

There is one meter for a process; the host adds the name of the plugin to what it
shows.
"""

import logging
import threading

from hardpoint.plugin.v1 import plugin_pb2

MAX_SERIES = 2000  # of a process; further ones record nothing and are counted
_BOUNDS = tuple(0.0001 * 4**i for i in range(9))  # of histograms, in seconds, as the host's own


class Counter:
    """A number that only grows. Safe for concurrent use."""

    def __init__(self):
        self._lock, self._value = threading.Lock(), 0

    def add(self, n=1):
        """Adds n, which is not negative."""
        if n < 0:
            raise ValueError(f"a counter only grows, {n} was added")
        with self._lock:
            self._value += n

    def _put(self, series):
        series.counter = self._value


class Histogram:
    """A distribution; durations are in seconds. Safe for concurrent use."""

    def __init__(self):
        self._lock, self._count, self._sum = threading.Lock(), 0, 0.0
        self._buckets = [0] * len(_BOUNDS)

    def observe(self, value):
        with self._lock:
            self._count += 1
            self._sum += value
            for i, bound in enumerate(_BOUNDS):
                if value <= bound:
                    self._buckets[i] += 1
                    break

    def _put(self, series):
        with self._lock:
            h, below = series.histogram, 0
            h.count, h.sum = self._count, self._sum
            for bound, n in zip(_BOUNDS, self._buckets):
                below += n
                h.buckets.add(up_to=bound, count=below)


class _Gauge:
    def __init__(self):
        self._reads = []

    def _put(self, series):
        series.gauge = sum(read() for read in tuple(self._reads))


class Meter:
    """Makes instruments. The same name and labels give the same instrument. Names are
    Prometheus's, without the prefix hardpoint_, labels are keywords:

        self.hits = self.meter.counter("cache_hits_total", "Reads served by the cache.", tier="memory")

    Safe for concurrent use.
    """

    def __init__(self):
        self._lock, self._series, self._left_out = threading.Lock(), {}, 0

    def counter(self, name, help, **labels):
        with self._lock:
            return self._of(Counter, name, help, labels)

    def histogram(self, name, help, **labels):
        with self._lock:
            return self._of(Histogram, name, help, labels)

    def gauge(self, name, help, read, **labels):
        """Calls read at each scrape, in any thread; it must be quick and give a number.
        What is returned drops it. One that several register tells the sum."""
        entry = lambda: read()  # noqa: E731 - read itself may be registered twice
        with self._lock:
            gauge = self._of(_Gauge, name, help, labels)
            gauge._reads.append(entry)

        def drop():
            with self._lock:
                if entry in gauge._reads:
                    gauge._reads.remove(entry)
                if not gauge._reads:
                    self._series = {k: v for k, v in self._series.items() if v[1] is not gauge}

        return drop

    def _of(self, kind, name, help, labels):
        """Finds or makes an instrument; the lock is held."""
        labels = tuple(sorted((k, str(v)) for k, v in labels.items()))
        _, found = self._series.get((name, labels), (None, None))
        if found is None:
            found = kind()
            if len(self._series) < MAX_SERIES:
                self._series[name, labels] = help, found
            else:
                self._left_out += 1
        # A name that is an instrument of another kind already records nothing.
        return found if type(found) is kind else kind()

    def collect(self, most):
        """The answer to the host's Metrics, with at most so many series."""
        most = min(most, MAX_SERIES)
        with self._lock:
            every = list(self._series.items())
            out = plugin_pb2.MetricsResponse(left_out=self._left_out + max(len(every) - most, 0))
        for (name, labels), (help, instrument) in every[:most]:
            try:
                one = plugin_pb2.Series(name=name, help=help)
                for key, value in labels:
                    one.labels.add(name=key, value=value)
                instrument._put(one)
            except Exception:
                logging.getLogger("hardpoint_plugin").warning("the metric %s cannot be read", name, exc_info=True)
                out.left_out += 1
                continue
            out.series.append(one)
        return out


#: That of this process.
METER = Meter()
