package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Floor is what sockets and page cache cost alone: a server that parses the
// frames, writes what one read brought with one pwrite and answers as a broker
// would. It keeps nothing that could be read again.
type Floor struct {
	// File is written from its start to its end, as a log is: a page that is
	// written for the first time costs the kernel several times what one costs
	// that is overwritten. At FileSize bytes (0: 16 GiB) it is emptied and begun
	// anew. Empty: nothing is written.
	File     string
	FileSize int64

	listener net.Listener
	file     *os.File
	tail     atomic.Int64
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	wg       sync.WaitGroup
}

// Listen opens the port, and the file when there is one.
func (f *Floor) Listen(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if f.File != "" {
		if f.FileSize == 0 {
			f.FileSize = 16 << 30
		}
		if f.file, err = os.OpenFile(f.File, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	f.listener, f.conns = l, map[net.Conn]struct{}{}
	return nil
}

// Address is where it listens.
func (f *Floor) Address() string { return f.listener.Addr().String() }

// Serve answers until ctx ends.
func (f *Floor) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		_ = f.listener.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		for c := range f.conns {
			_ = c.Close()
		}
	})
	defer stop()
	var err error
	for {
		var nc net.Conn
		if nc, err = f.listener.Accept(); err != nil {
			break
		}
		f.mu.Lock()
		f.conns[nc] = struct{}{}
		if ctx.Err() != nil {
			_ = nc.Close()
		}
		f.mu.Unlock()
		f.wg.Go(func() {
			_ = f.serve(nc) // a client that goes away is no fault
			_ = nc.Close()
			f.mu.Lock()
			delete(f.conns, nc)
			f.mu.Unlock()
		})
	}
	f.wg.Wait()
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *Floor) serve(nc net.Conn) error {
	buf := make([]byte, readSize)
	var frames []command.Frame
	var out []byte
	var h command.Header
	msgID := []byte("7F00000100002A9F0000000000000000")
	filled := 0
	for {
		n, err := nc.Read(buf[filled:])
		filled += n
		if err != nil {
			return err
		}
		got, used, want, err := command.Split(buf[:filled], frames[:0], command.DefaultLimits())
		if err != nil {
			return err
		}
		frames, out = got, out[:0]
		if used > 0 && f.file != nil {
			if err := f.write(buf[:used]); err != nil {
				return err
			}
		}
		for i := range frames {
			if err := h.Decode(&frames[i]); err != nil {
				return err
			}
			w := command.Begin(out, h.Type, command.RespSuccess, h.Opaque, command.FlagResponse)
			if h.Code == command.ReqSendMessageV2 || h.Code == command.ReqSendMessage {
				r := command.SendResponse{MsgID: msgID, QueueOffset: int64(h.Opaque), TraceOn: true}
				r.Append(&w)
			}
			out = w.End(0)
		}
		copy(buf, buf[used:filled])
		filled -= used
		if len(out) > 0 {
			if _, err := nc.Write(out); err != nil {
				return err
			}
		}
		if need := max(want, filled+1); need > len(buf) {
			buf = append(buf[:filled], make([]byte, max(need, 2*len(buf))-filled)...)
		}
	}
}

// write puts b behind what the other connections wrote.
func (f *Floor) write(b []byte) error {
	n := int64(len(b))
	at := f.tail.Add(n) - n
	if _, err := f.file.WriteAt(b, at); err != nil {
		return fmt.Errorf("writing the floor's file: %w", err)
	}
	if at < f.FileSize && at+n >= f.FileSize { // true for one of the writers
		f.tail.Store(0)
		if err := f.file.Truncate(0); err != nil {
			return fmt.Errorf("emptying the floor's file: %w", err)
		}
	}
	return nil
}
