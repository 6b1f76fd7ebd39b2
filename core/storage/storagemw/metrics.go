package storagemw

import (
	"context"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var _ Middleware = Metrics

// Metrics counts calls, records, bytes and errors, and times calls, with the
// Meter and the Clock of p. All names begin with "storage_", all instruments
// have the label store. It costs two readings of the clock a call and allocates
// nothing.
func Metrics(p storage.Params, next storage.Store) storage.Store {
	s := p.WithDefaults()
	label := plugin.Label{Name: "store", Value: s.Name}
	m := &metrics{Base: Base{next}, clock: s.Clock, meter: s.Meter, label: label}
	op := func(name string) timed {
		l := plugin.Label{Name: "op", Value: name}
		return timed{
			clock:   s.Clock,
			seconds: s.Meter.Histogram("storage_call_seconds", "Duration of calls of the store.", label, l),
			errors:  s.Meter.Counter("storage_call_errors_total", "Calls of the store that failed.", label, l),
		}
	}
	m.append, m.sync = op("append"), op("sync")
	m.read, m.get, m.offsets = op("read"), op("get"), op("offsets")
	m.appended = s.Meter.Counter("storage_appended_records_total", "Records appended.", label)
	m.appendedBytes = s.Meter.Counter("storage_appended_bytes_total", "Bytes of records appended.", label)
	m.readRecords = s.Meter.Counter("storage_read_records_total", "Records read by queue or position.", label)
	m.readBytes = s.Meter.Counter("storage_read_bytes_total", "Bytes of records read by queue or position.", label)
	m.cold = s.Meter.Counter("storage_cold_reads_total", "Reads that met something not in memory.", label)

	c := next.Capabilities()
	m.caps.Survives, m.caps.ExpiresBeside = c.Survives, c.ExpiresBeside
	if c.RawLog != nil {
		m.caps.RawLog = &rawLogMetrics{
			next: c.RawLog, readLog: op("read_log"), publish: op("publish"), truncate: op("truncate"), reset: op("reset"),
			bytes: s.Meter.Counter("storage_log_read_bytes_total", "Bytes of the log read for replicas.", label),
		}
	}
	if c.Retention != nil {
		m.caps.Retention = &retentionMetrics{next: c.Retention, segments: op("segments"), expire: op("expire"), drop: op("drop")}
	}
	if c.KeyIndex != nil {
		m.caps.KeyIndex = &keyIndexMetrics{next: c.KeyIndex, find: op("find")}
	}
	if c.Reopener != nil {
		m.caps.Reopener = &reopenerMetrics{
			Reopener: c.Reopener,
			reopens:  s.Meter.Counter("storage_reopens_total", "Times that the store was opened again after its process was gone.", label),
			attempts: s.Meter.Counter("storage_reopen_failures_total", "Attempts to open the store again that failed.", label),
		}
	}
	return m
}

// timed are the instruments of one operation.
type timed struct {
	clock   plugin.Clock
	seconds plugin.Histogram
	errors  plugin.Counter
}

// done records a call that began at start.
func (t *timed) done(start time.Time, err error) error {
	t.seconds.Observe(t.clock.Now().Sub(start).Seconds())
	if err != nil {
		t.errors.Add(1)
	}
	return err
}

type metrics struct {
	Base
	clock plugin.Clock
	meter plugin.Meter
	label plugin.Label
	caps  storage.Capabilities

	mu    sync.Mutex // guards drops: Shutdown may be called twice at once
	drops []func()

	append, sync, read, get, offsets timed

	appended, appendedBytes, readRecords, readBytes, cold plugin.Counter
}

// Start implements plugin.Component; the gauges live from here to Shutdown.
func (m *metrics) Start(ctx context.Context) error {
	if err := m.Store.Start(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range []struct {
		name, help string
		read       func(storage.State) message.Position
	}{
		{"storage_log_bytes", "Bytes between the first position and the tail.", func(s storage.State) message.Position { return s.Tail - s.First }},
		{"storage_unsynced_bytes", "Bytes that power loss would take away.", func(s storage.State) message.Position { return s.Tail - s.Durable }},
		{"storage_unpublished_bytes", "Bytes appended and not yet visible.", func(s storage.State) message.Position { return s.Tail - s.Published }},
		{"storage_damaged_ranges", "Ranges of the log that cannot be read.", func(s storage.State) message.Position { return message.Position(len(s.Damaged)) }},
	} {
		m.drops = append(m.drops, m.meter.Gauge(g.name, g.help, func() float64 { return float64(g.read(m.State())) }, m.label))
	}
	return nil
}

// Shutdown implements plugin.Component.
func (m *metrics) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	drops := m.drops
	m.drops = nil
	m.mu.Unlock()
	for _, drop := range drops {
		drop()
	}
	return m.Store.Shutdown(ctx)
}

// Capabilities offers what the store offers, each facet timed.
func (m *metrics) Capabilities() storage.Capabilities { return m.caps }

func (m *metrics) Append(ctx context.Context, b *storage.Batch) error {
	bytes := len(b.Buf) // b may be the caller's again after Append
	records := 0
	for off := 0; off+message.MinRecordSize <= bytes; off += int(max(message.Size(b.Buf[off:]), message.MinRecordSize)) {
		records++
	}
	start := m.clock.Now()
	err := m.append.done(start, m.Store.Append(ctx, b))
	if err == nil {
		m.appended.Add(uint64(records))
		m.appendedBytes.Add(uint64(bytes))
	}
	return err
}

func (m *metrics) Sync(ctx context.Context, end message.Position) error {
	return m.sync.done(m.clock.Now(), m.Store.Sync(ctx, end))
}

func (m *metrics) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	return m.took(c, m.read.done(m.clock.Now(), m.Store.Read(ctx, r, c)))
}

func (m *metrics) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	return m.took(c, m.get.done(m.clock.Now(), m.Store.Get(ctx, at, c)))
}

func (m *metrics) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	return m.offsets.done(m.clock.Now(), m.Store.Offsets(ctx, q, a))
}

// took counts what a chunk brought.
func (m *metrics) took(c *storage.Chunk, err error) error {
	if err == nil {
		m.readRecords.Add(uint64(len(c.Units)))
		m.readBytes.Add(size(c))
		if c.Cold {
			m.cold.Add(1)
		}
	}
	return err
}

func size(c *storage.Chunk) (n uint64) {
	for _, f := range c.Frags {
		n += uint64(len(f))
	}
	return n
}

type rawLogMetrics struct {
	next                              storage.RawLog
	readLog, publish, truncate, reset timed
	bytes                             plugin.Counter
}

func (m *rawLogMetrics) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	err := m.readLog.done(m.readLog.clock.Now(), m.next.ReadLog(ctx, from, most, c))
	if err == nil {
		m.bytes.Add(size(c))
	}
	return err
}

func (m *rawLogMetrics) Publish(ctx context.Context, upTo message.Position) error {
	return m.publish.done(m.publish.clock.Now(), m.next.Publish(ctx, upTo))
}

func (m *rawLogMetrics) Truncate(ctx context.Context, at message.Position) error {
	return m.truncate.done(m.truncate.clock.Now(), m.next.Truncate(ctx, at))
}

func (m *rawLogMetrics) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	return m.reset.done(m.reset.clock.Now(), m.next.Reset(ctx, first, ends))
}

type retentionMetrics struct {
	next                   storage.Retention
	segments, expire, drop timed
}

func (m *retentionMetrics) Segments(ctx context.Context) ([]storage.Segment, error) {
	start := m.segments.clock.Now()
	out, err := m.next.Segments(ctx)
	return out, m.segments.done(start, err)
}

func (m *retentionMetrics) Expire(ctx context.Context, first message.Position) error {
	return m.expire.done(m.expire.clock.Now(), m.next.Expire(ctx, first))
}

func (m *retentionMetrics) Drop(ctx context.Context, q []message.Queue) error {
	return m.drop.done(m.drop.clock.Now(), m.next.Drop(ctx, q))
}

type keyIndexMetrics struct {
	next storage.KeyIndex
	find timed
}

func (m *keyIndexMetrics) Find(ctx context.Context, q storage.KeyQuery, at []message.Position) ([]message.Position, error) {
	start := m.find.clock.Now()
	out, err := m.next.Find(ctx, q, at)
	return out, m.find.done(start, err)
}

// reopenerMetrics counts; how long it takes is nobody's call.
type reopenerMetrics struct {
	storage.Reopener
	reopens, attempts plugin.Counter
}

func (m *reopenerMetrics) Reopened(ctx context.Context) error {
	err := m.Reopener.Reopened(ctx)
	switch {
	case err == nil:
		m.reopens.Add(1)
	case ctx.Err() == nil:
		m.attempts.Add(1)
	}
	return err
}
