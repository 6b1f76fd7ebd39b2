package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Watch stands between brokers and a name server: it forwards both ways and counts what
// brokers ask, how large it is and how long the answer takes.
type Watch struct {
	To string // address of the name server

	listener net.Listener
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	asked    map[int32]*Asked
	wg       sync.WaitGroup
}

// Asked is what was asked with one request code.
type Asked struct {
	Code  int32  `json:"code"`
	Name  string `json:"name"`
	Count int64  `json:"count"`
	// Bytes is the length of all frames with this code, Largest that of the largest.
	Bytes   int64 `json:"bytes"`
	Largest int64 `json:"largestBytes"`
	// From the request to its answer, in milliseconds.
	MeanMs float64 `json:"meanMs"`
	MaxMs  float64 `json:"maxMs"`

	answers int64
}

// Listen opens the port.
func (w *Watch) Listen(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	w.listener, w.conns, w.asked = l, map[net.Conn]struct{}{}, map[int32]*Asked{}
	return nil
}

// Address is where it listens.
func (w *Watch) Address() string { return w.listener.Addr().String() }

// Serve forwards until ctx ends.
func (w *Watch) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		_ = w.listener.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for c := range w.conns {
			_ = c.Close()
		}
	})
	defer stop()
	for {
		in, err := w.listener.Accept()
		if err != nil {
			w.wg.Wait()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		w.wg.Go(func() { w.forward(ctx, in) })
	}
}

// Asked tells what was asked so far, by code.
func (w *Watch) Asked() []Asked {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Asked
	for _, a := range w.asked {
		one := *a
		if one.answers > 0 {
			one.MeanMs = round(one.MeanMs/float64(one.answers), 100)
		}
		one.MaxMs = round(one.MaxMs, 100)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Asked) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// Reset forgets what was asked so far.
func (w *Watch) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.asked)
}

func (w *Watch) forward(ctx context.Context, in net.Conn) {
	defer in.Close()
	out, err := new(net.Dialer).DialContext(ctx, "tcp", w.To)
	if err != nil {
		return // the broker sees a closed connection, as from a name server that is away
	}
	defer out.Close()
	w.mu.Lock()
	w.conns[in], w.conns[out] = struct{}{}, struct{}{}
	if ctx.Err() != nil {
		_ = in.Close()
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, in)
		delete(w.conns, out)
	}()
	open := map[int32]waiting{} // by opaque; guarded by w.mu
	var both sync.WaitGroup
	both.Go(func() {
		defer out.Close()
		_ = pass(in, out, func(f *command.Frame, h *command.Header) { w.request(open, f, h) }) // ends with the connection
	})
	both.Go(func() {
		defer in.Close()
		_ = pass(out, in, func(_ *command.Frame, h *command.Header) { w.answer(open, h) })
	})
	both.Wait()
}

type waiting struct {
	code  int32
	since time.Time
}

func (w *Watch) request(open map[int32]waiting, f *command.Frame, h *command.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.IsResponse() {
		return // to what the name server asked
	}
	a := w.asked[h.Code]
	if a == nil {
		a = &Asked{Code: h.Code, Name: command.RequestName(h.Code)}
		w.asked[h.Code] = a
	}
	a.Count++
	a.Bytes += int64(len(f.Raw))
	a.Largest = max(a.Largest, int64(len(f.Raw)))
	open[h.Opaque] = waiting{h.Code, time.Now()}
}

func (w *Watch) answer(open map[int32]waiting, h *command.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q, ok := open[h.Opaque]
	if !ok || !h.IsResponse() {
		return
	}
	delete(open, h.Opaque)
	if a := w.asked[q.code]; a != nil {
		ms := time.Since(q.since).Seconds() * 1000
		a.answers++
		a.MeanMs += ms
		a.MaxMs = max(a.MaxMs, ms)
	}
}

// pass forwards frames until one side closes; see is told of each.
func pass(from, to net.Conn, see func(*command.Frame, *command.Header)) error {
	r := bufio.NewReaderSize(from, readSize)
	var h command.Header
	for {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		if err := h.Decode(&f); err != nil {
			return fmt.Errorf("from %s: %w", from.RemoteAddr(), err)
		}
		see(&f, &h)
		if _, err := to.Write(f.Raw); err != nil {
			return err
		}
	}
}

// Print writes what was asked for a person.
func (w *Watch) Print(out io.Writer) {
	for _, a := range w.Asked() {
		fmt.Fprintf(out, "%s (%d): %d times, %d bytes, the largest %d; answered after %.2f ms, at most %.2f\n",
			a.Name, a.Code, a.Count, a.Bytes, a.Largest, a.MeanMs, a.MaxMs)
	}
}

func readFrame(r io.Reader) (command.Frame, error) {
	buf := make([]byte, 4)
	if _, err := io.ReadFull(r, buf); err != nil {
		return command.Frame{}, err
	}
	n := binary.BigEndian.Uint32(buf)
	if n > command.MaxFrame {
		return command.Frame{}, command.ErrFrameTooLarge
	}
	buf = append(buf, make([]byte, n)...)
	if _, err := io.ReadFull(r, buf[4:]); err != nil {
		return command.Frame{}, err
	}
	frames, _, _, err := command.Split(buf, nil, command.DefaultLimits())
	if err != nil {
		return command.Frame{}, err
	}
	if len(frames) != 1 {
		return command.Frame{}, command.ErrHeader
	}
	return frames[0], nil
}
