package data

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

const (
	nonceSize = 32
	// helloTime bounds the beginning of a connection.
	helloTime = 10 * time.Second
	// acceptTime bounds the wait for a host, which connects at once. One that never
	// heard of the socket does not come.
	acceptTime = time.Minute
)

// Listener is the plugin's end of a data socket that waits for its host.
type Listener struct {
	// Path and Nonce are what the host must be told.
	Path  string
	Nonce []byte

	ln net.Listener
}

// Listen opens a socket in a directory that the host made for it.
func Listen(dir string) (*Listener, error) {
	l := &Listener{Path: filepath.Join(dir, "data"), Nonce: make([]byte, nonceSize)}
	_, _ = rand.Read(l.Nonce) // never fails
	var err error
	if l.ln, err = net.Listen("unix", l.Path); err != nil {
		return nil, fmt.Errorf("listen on the data socket: %w", err)
	}
	return l, nil
}

// Close ends Accept.
func (l *Listener) Close() { _ = l.ln.Close() }

// Accept waits for one connection of each role, in any order, and closes the
// listener; those of a role that stands there several times are in the order in
// which they connected. Connections that do not know the nonce, or are one too many, are refused.
// When ctx ends, or not all have come within a minute, what has come is closed.
func (l *Listener) Accept(ctx context.Context, log *slog.Logger, roles string) ([]net.Conn, error) {
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, acceptTime)
	defer cancel()
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	conns := make([]net.Conn, len(roles))
	for slices.Contains(conns, nil) {
		c, err := l.ln.Accept()
		if err != nil {
			for _, c := range conns {
				if c != nil {
					_ = c.Close()
				}
			}
			return nil, err
		}
		role, err := l.hello(c)
		at := -1
		for i := range roles {
			if err == nil && at < 0 && roles[i] == role && conns[i] == nil {
				at = i
			}
		}
		if at < 0 {
			log.Warn("a connection to the data socket was refused", "role", role, "error", err)
			_ = c.Close()
			continue
		}
		widen(c)
		conns[at] = c
	}
	return conns, nil
}

func (l *Listener) hello(c net.Conn) (byte, error) {
	var b [nonceSize + 1]byte
	if err := c.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return 0, err
	}
	if subtle.ConstantTimeCompare(b[:nonceSize], l.Nonce) != 1 {
		return 0, errors.New("wrong nonce")
	}
	return b[nonceSize], c.SetReadDeadline(time.Time{})
}

// ErrNoSocket: the plugin has no data socket. It matches plugin.ErrUnavailable; for
// a kind that has a form without one it is no fault.
var ErrNoSocket = fmt.Errorf("%w: it made an instance without a data socket, which plugins of this kind need; this is a fault of the plugin", plugin.ErrUnavailable)

// Offer is what a plugin says of its data socket.
type Offer struct {
	Path  string
	Nonce []byte
	Roles string // of the connections that it takes, one letter each
}

// Connect is the host's end: it calls open with a directory for the socket, which
// nobody else may enter, and connects once for each role. The directory is gone
// when it returns: nobody else needs it, and nothing is left behind whoever is
// killed. what names the plugin in errors. ErrNoSocket when open gives no path; the
// errors of open are given on, all others match plugin.ErrUnavailable.
func Connect(ctx context.Context, what string, open func(dir string) (Offer, error)) ([]net.Conn, error) {
	dir, remove, err := wire.SocketDir()
	if err != nil {
		return nil, err
	}
	defer remove()
	o, err := open(dir)
	if err != nil {
		return nil, err
	}
	if o.Path == "" {
		return nil, fmt.Errorf("%s: %w", what, ErrNoSocket)
	}
	conns, err := Dial(ctx, o.Path, o.Nonce, o.Roles)
	if err != nil {
		return nil, fmt.Errorf("connect to the data socket of %s: %w: %w", what, plugin.ErrUnavailable, err)
	}
	return conns, nil
}

// Dial connects once for each role to a socket that the other end has told.
func Dial(ctx context.Context, path string, nonce []byte, roles string) ([]net.Conn, error) {
	var d net.Dialer
	var conns []net.Conn
	for i := range roles {
		c, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			conns = append(conns, c)
			widen(c)
			_, err = c.Write(append(slices.Clone(nonce), roles[i]))
		}
		if err != nil {
			for _, c := range conns {
				_ = c.Close()
			}
			return nil, err
		}
	}
	return conns, nil
}

// widen asks for socket buffers that hold a batch, so that its writer is not
// woken for every part of it. The system may give less.
func widen(c net.Conn) {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(1 << 20)
		_ = u.SetReadBuffer(1 << 20)
	}
}
