package remoting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// collector is a session that keeps copies of what arrives.
type collector struct {
	frames  [][]byte
	settles int
}

func (c *collector) Opened(transport.Peer) transport.Session { return c }
func (c *collector) Settle()                                 { c.settles++ }
func (c *collector) Closed(error)                            {}
func (c *collector) Arrived(in []command.Frame) {
	for i := range in {
		c.frames = append(c.frames, bytes.Clone(in[i].Raw))
		for j := range in[i].Raw {
			in[i].Raw[j] = 0xDD
		}
	}
}

// reader makes a peer without a connection, to be fed by hand.
func reader(t testing.TB, lim transport.Limits) (*peer, *collector) {
	t.Helper()
	tr, err := New(t.Context(), transport.Params{}, Config{})
	require.NoError(t, err)
	g := tr.newGroup(lim, nil)
	c := &collector{}
	p := &peer{g: g, h: c, s: c}
	p.in.pools, p.in.read = &tr.pools, &g.read
	return p, c
}

// feed does what the read loop does when stream comes in pieces whose sizes
// size tells; park tells after which nothing more was ready.
func feed(t testing.TB, p *peer, stream []byte, size func() int, park func() bool) error {
	t.Helper()
	for len(stream) > 0 {
		space := p.in.space()
		if space == nil {
			return errReadBytes
		}
		n := copy(space, stream[:min(len(stream), max(size(), 1))])
		stream = stream[n:]
		p.in.have += n
		if _, err := p.cut(); err != nil {
			return err
		}
		if park() {
			p.in.park()
			limit := smallBuffer
			if p.in.have > smallBuffer {
				limit = max(baseBuffer, 8*p.in.have)
			}
			if p.in.buf != nil && len(p.in.buf.b) > limit {
				t.Fatalf("%d bytes of %d are kept in a buffer of %d while waiting", p.in.have, p.in.want, len(p.in.buf.b))
			}
		}
	}
	return nil
}

// FuzzRead feeds valid, mutated and invented streams in random pieces: the
// frames must be those that one piece yields.
func FuzzRead(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200}, uint64(0), uint64(1))
	f.Add([]byte{255, 1, 255, 0, 0, 7}, uint64(4096), uint64(2))
	f.Add([]byte{250, 250, 3}, uint64(4096|1<<63), uint64(3))
	f.Add([]byte{9, 9, 9}, uint64(100|1<<62), uint64(4))
	one := frameOf(5, 20)
	f.Add(append(one, one...), uint64(1<<61), uint64(5))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x03"), uint64(1<<61), uint64(6))
	f.Fuzz(func(t *testing.T, data []byte, plan, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, plan))
		var stream []byte
		if plan&(1<<61) != 0 {
			stream = data
		} else {
			scale := int(plan % 5000)
			for i, b := range data {
				if len(stream) < 2<<20 {
					stream = append(stream, frameOf(i, int(b)*scale)...)
				}
			}
			if plan&(1<<62) != 0 && len(stream) > 0 { // spoil a byte
				stream[rnd.IntN(len(stream))] ^= byte(1 + rnd.IntN(255))
			}
			if plan&(1<<63) != 0 { // cut the end
				stream = stream[:len(stream)-min(len(stream), rnd.IntN(200))]
			}
		}
		lim := transport.Limits{Frame: 1 << 20, Header: 4 << 10}
		p, got := reader(t, lim)
		want, used, _, wantErr := command.Split(bytes.Clone(stream), nil, p.g.split)
		largest := 1 << rnd.IntN(20)
		err := feed(t, p, stream, func() int { return rnd.IntN(largest + 1) }, func() bool { return rnd.IntN(3) == 0 })
		if (err == nil) != (wantErr == nil) || wantErr != nil && !errors.Is(err, errors.Unwrap(wantErr)) {
			t.Fatalf("in pieces: %v; at once: %v", err, wantErr)
		}
		if errors.Is(wantErr, command.ErrFrameTooLarge) != errors.Is(err, transport.ErrLimit) {
			t.Fatalf("%v: wrong kind of error", err)
		}
		if len(got.frames) != len(want) {
			t.Fatalf("%d frames in pieces, %d at once", len(got.frames), len(want))
		}
		for i := range want {
			if !bytes.Equal(got.frames[i], want[i].Raw) {
				t.Fatalf("frame %d differs", i)
			}
		}
		if err == nil && p.in.have != len(stream)-used {
			t.Fatalf("%d bytes are left, want %d", p.in.have, len(stream)-used)
		}
		p.in.release()
		if n := p.g.read.used.Load(); n != 0 {
			t.Fatalf("%d bytes of the budget are still taken", n)
		}
	})
}

func frameOf(opaque, n int) []byte {
	f := command.Frame{Header: command.AppendResponse(nil, command.HeaderType(opaque%2), 0, int32(opaque), "", n), Body: make([]byte, n)}
	for i := range f.Body {
		f.Body[i] = byte(i * opaque)
	}
	return f.Append(nil)
}

// A peer that announces a large frame and sends little costs little.
func TestAnnouncedFrameCostsNothing(t *testing.T) {
	p, _ := reader(t, transport.Limits{})
	head := binary.BigEndian.AppendUint32(nil, 16<<20-4)
	head = append(head, 0, 0, 0, 2, '{', '}')
	require.NoError(t, feed(t, p, head, func() int { return 100 }, func() bool { return true }))
	require.Equal(t, 16<<20, p.in.want)
	require.Zero(t, p.g.read.used.Load())
	require.Len(t, p.in.buf.b, smallBuffer)
}

// After large frames nothing large is kept, and reading allocates nothing.
func TestBuffersAreGivenBack(t *testing.T) {
	p, c := reader(t, transport.Limits{})
	stream := append(frameOf(1, 5<<20), frameOf(2, 100)...)
	for range 3 {
		require.NoError(t, feed(t, p, stream, func() int { return 50_000 }, func() bool { return false }))
		p.in.park()
		require.Nil(t, p.in.buf)
		require.Zero(t, p.g.read.used.Load())
	}
	require.Len(t, c.frames, 6)
}

// Many tiny frames behind a large one must not come at once: the list of frames
// is larger than the frames.
func TestFrameListIsBounded(t *testing.T) {
	p, _ := reader(t, transport.Limits{})
	big := frameOf(1, 1<<20)
	require.NoError(t, feed(t, p, big[:1<<20], func() int { return 1 << 20 }, func() bool { return false }))
	require.LessOrEqual(t, len(p.in.space()), len(big)-1<<20+baseBuffer)
}

func TestBacklogQueue(t *testing.T) {
	var pl pools
	b := budget{limit: 200 << 10}
	var o backlog
	var want []byte
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := 0; ; i++ {
		part := bytes.Repeat([]byte{byte(i)}, rnd.IntN(20_000))
		if !o.add(part, &pl, &b) {
			break
		}
		want = append(want, part...)
	}
	require.Greater(t, len(want), 100<<10)
	var got []byte
	for buf := o.take(); buf != nil; buf = o.take() {
		got = append(got, buf.b[:buf.to]...)
		pl.put(buf, &b)
	}
	require.Equal(t, want, got[:len(want)])
	require.Zero(t, b.used.Load())
	require.True(t, o.add([]byte("x"), &pl, &b))
	o.drop(&pl, &b)
	require.Zero(t, b.used.Load())
}
