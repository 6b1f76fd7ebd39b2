package transporttest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

var byteCases = []testCase{
	{"one_by_one", testOneByOne},
	{"one_segment", testOneSegment},
	{"random_cuts", testRandomCuts},
	{"half_frame", testHalfFrame},
	{"garbage", testGarbage},
	{"frames_before_garbage", testFramesBeforeGarbage},
}

// stream makes n frames of different sizes, also as one piece.
func stream(n, size int) (frames [][]byte, all []byte) {
	for i := range n {
		f := frame(headerType(i), int32(i), i*977%size)
		frames = append(frames, f.Append(nil))
		all = append(all, frames[i]...)
	}
	return frames, all
}

func write(t *testing.T, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Fatalf("writing %d bytes: %v", len(b), err)
	}
}

func same(t *testing.T, got, want [][]byte) {
	t.Helper()
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("frame %d is changed: %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
}

func testOneByOne(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	c := r.bytes()
	want, all := stream(5, 200)
	for i := range all {
		write(t, c, all[i:i+1])
	}
	same(t, r.server.session(0).wait(len(want)), want)
}

func testOneSegment(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	c := r.bytes()
	want, all := stream(3000, 400)
	write(t, c, all)
	same(t, r.server.session(0).wait(len(want)), want)
}

func testRandomCuts(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	c := r.bytes()
	rnd := rand.New(rand.NewPCG(1, 2))
	want, all := stream(60, 200_000)
	for len(all) > 0 {
		n := min(len(all), 1+rnd.IntN(1<<rnd.IntN(18)))
		write(t, c, all[:n])
		all = all[n:]
	}
	same(t, r.server.session(0).wait(len(want)), want)
}

func testHalfFrame(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	c := r.bytes()
	want, all := stream(2, 300)
	write(t, c, all[:len(all)-1])
	s := r.server.session(0)
	same(t, s.wait(1), want[:1])
	_ = c.Close()
	mustBe(t, "Closed after half a frame", s.gone(), io.EOF)
	s.wait(1)
}

func testGarbage(t *testing.T, h Harness) {
	limits := transport.Limits{Frame: 1 << 20, Header: 1000}
	r := h.serve(t, limits, echoes)
	bystander, p := r.dial(transport.Limits{})
	if err := p.Send(frame(command.JSON, 0, 10)); err != nil {
		t.Fatal(err)
	}
	bystander.session(0).wait(1)
	for i, c := range []struct {
		name string
		wire []byte
		want error
	}{
		{"length below 4", []byte{0, 0, 0, 3, 0, 0, 0, 0}, command.ErrHeader},
		{"unknown header type", []byte{0, 0, 0, 20, 9, 0, 0, 4, 1, 2, 3, 4}, command.ErrHeader},
		{"header longer than the frame", []byte{0, 0, 0, 20, 0, 0, 0, 200, 1, 2, 3, 4}, command.ErrHeader},
		{"frame above the limit", []byte{0, 0x20, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4}, transport.ErrLimit},
		{"header above the limit", []byte{0, 1, 0, 0, 0, 0, 0x10, 0, 1, 2, 3, 4}, transport.ErrLimit},
		{"text", []byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"), transport.ErrLimit},
		{"ones", bytes.Repeat([]byte{0xFF}, 300), transport.ErrLimit},
	} {
		conn := r.bytes()
		write(t, conn, c.wire)
		s := r.server.session(i + 1)
		mustBe(t, c.name, s.gone(), c.want)
		if n := len(s.frames); n != 0 {
			t.Errorf("%s: %d frames arrived", c.name, n)
		}
		if n, err := io.Copy(io.Discard, conn); n != 0 {
			t.Errorf("%s: the connection answered %d bytes (%v)", c.name, n, err)
		}
	}
	if err := p.Send(frame(command.JSON, 1, 10)); err != nil {
		t.Fatal(err)
	}
	bystander.session(0).wait(2)
}

func testFramesBeforeGarbage(t *testing.T, h Harness) {
	r := h.serve(t, transport.Limits{})
	c := r.bytes()
	want, all := stream(20, 300)
	write(t, c, append(all, 0xFF, 0xFF, 0xFF, 0xFF))
	s := r.server.session(0)
	if err := s.gone(); !errors.Is(err, transport.ErrLimit) {
		t.Errorf("Closed with %v, want ErrLimit", err)
	}
	same(t, s.wait(len(want)), want)
}
