package transporttest

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// patience is how long a case waits for what must happen. It is only used up
// when a test fails.
const patience = time.Minute

// recorder is a handler that checks the rules of the contract and remembers
// what it saw, for all its sessions.
type recorder struct {
	t    *testing.T
	name string
	// arrived is called in Arrived, before the frames are recorded.
	arrived func(s *session, in []command.Frame)
	// forget keeps no copies of the frames; they are only counted.
	forget bool

	settles atomic.Int64

	mu       sync.Mutex
	sessions []*session
	changed  chan struct{}
}

// session is the recorder's session of one peer.
type session struct {
	r    *recorder
	peer transport.Peer
	busy atomic.Bool

	// Guarded by r.mu.
	frames    [][]byte // copies of Raw
	count     int
	unsettled bool
	closed    int
	cause     error
}

func newRecorder(t *testing.T, name string) *recorder {
	return &recorder{t: t, name: name, changed: make(chan struct{})}
}

func (r *recorder) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Opened implements [transport.Handler].
func (r *recorder) Opened(p transport.Peer) transport.Session {
	s := &session{r: r, peer: p}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = append(r.sessions, s)
	r.notify()
	return s
}

// Settle implements [transport.Handler]. It does not say for which peer it is,
// so it counts for all whose Arrived has returned.
func (r *recorder) Settle() {
	r.settles.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if !s.busy.Load() {
			s.unsettled = false
		}
	}
	r.notify()
}

// Arrived implements [transport.Session].
func (s *session) Arrived(in []command.Frame) {
	if s.busy.Swap(true) {
		s.r.t.Errorf("%s: calls of one session overlap", s.r.name)
	}
	defer s.busy.Store(false)
	if len(in) == 0 {
		s.r.t.Errorf("%s: Arrived without a frame", s.r.name)
	}
	if s.r.arrived != nil {
		s.r.arrived(s, in)
	}
	var copies [][]byte
	for i := range in {
		f := &in[i]
		if err := wellFormed(f); err != nil {
			s.r.t.Errorf("%s: frame %d of %d: %v", s.r.name, i, len(in), err)
		}
		if !s.r.forget {
			copies = append(copies, append([]byte(nil), f.Raw...))
		}
		// Lent means lent to us: what we do to it must hurt nobody.
		clear(f.Raw)
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.closed > 0 {
		s.r.t.Errorf("%s: Arrived after Closed", s.r.name)
	}
	s.frames = append(s.frames, copies...)
	s.count += len(in)
	s.unsettled = true
	s.r.notify()
}

func wellFormed(f *command.Frame) error {
	if len(f.Raw) < 8 || len(f.Header)+len(f.Body)+8 != len(f.Raw) || f.Bodies != nil {
		return fmt.Errorf("frame with Raw of %d bytes, Header of %d, Body of %d and %d Bodies", len(f.Raw), len(f.Header), len(f.Body), len(f.Bodies))
	}
	if n := binary.BigEndian.Uint32(f.Raw); int(n)+4 != len(f.Raw) {
		return fmt.Errorf("the length word says %d, Raw has %d bytes", n, len(f.Raw))
	}
	return nil
}

// Closed implements [transport.Session].
func (s *session) Closed(err error) {
	if s.busy.Load() {
		s.r.t.Errorf("%s: Closed while Arrived runs", s.r.name)
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.closed++; s.closed > 1 {
		s.r.t.Errorf("%s: Closed %d times", s.r.name, s.closed)
	}
	if err == nil {
		s.r.t.Errorf("%s: Closed without a reason", s.r.name)
	}
	s.cause = err
	s.r.notify()
}

// until waits until cond, which is called with r.mu held, is true.
func (r *recorder) until(what string, cond func() bool) {
	r.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		ok, changed := cond(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			r.t.Fatalf("%s: waited in vain until %s", r.name, what)
		}
	}
}

// session waits for the n-th session, counted from 0.
func (r *recorder) session(n int) *session {
	r.t.Helper()
	r.until(fmt.Sprintf("%d peers are opened", n+1), func() bool { return len(r.sessions) > n })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[n]
}

// wait waits for n frames, and for the Settle after them, and returns copies.
func (s *session) wait(n int) [][]byte {
	s.r.t.Helper()
	s.r.until(fmt.Sprintf("%d frames have arrived and are settled", n), func() bool { return s.count >= n && !s.unsettled })
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.count > n {
		s.r.t.Fatalf("%s: %d frames arrived, want %d", s.r.name, s.count, n)
	}
	return s.frames
}

// gone waits for Closed and returns its reason.
func (s *session) gone() error {
	s.r.t.Helper()
	s.r.until("the peer is closed", func() bool { return s.closed > 0 })
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.cause
}

// echo is a recorder's arrived that sends everything back as it came.
func echo(s *session, in []command.Frame) {
	if err := s.peer.Send(in...); err != nil {
		s.r.t.Errorf("%s: sending back: %v", s.r.name, err)
	}
}

func echoes(r *recorder) { r.arrived = echo }

// frame makes an outgoing frame with a recognisable body of n bytes.
func frame(typ command.HeaderType, opaque int32, n int) command.Frame {
	body := make([]byte, n)
	const period = 251 // no power of two, so that shifted copies differ
	for i := range body[:min(n, period)] {
		body[i] = byte(int(opaque)*31 + i*7)
	}
	for done := period; done < n; done *= 2 {
		copy(body[done:], body[:done])
	}
	w := command.Begin(nil, typ, 10, opaque, 0)
	w.Ext("topic", "T")
	w.ExtInt("queueId", int64(opaque%16))
	return command.Frame{Header: w.End(n), Body: body}
}

// headerType alternates.
func headerType(i int) command.HeaderType { return command.HeaderType(i % 2) }

// opaque reads the number of a frame back.
func opaque(t *testing.T, raw []byte) int32 {
	t.Helper()
	f, used, _, err := command.Split(raw, nil, command.DefaultLimits())
	if err != nil || used != len(raw) || len(f) != 1 {
		t.Fatalf("not one frame: %v", err)
	}
	var h command.Header
	if err := h.Decode(&f[0]); err != nil {
		t.Fatalf("header: %v", err)
	}
	return h.Opaque
}
