package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Contract is the name and major version of this contract.
const Contract = "transport/1"

// Sentinels of the contract; test with errors.Is.
var (
	// ErrClosed: the peer or the listener is closed.
	ErrClosed = errors.New("connection is closed")
	// ErrSlow: the peer does not read what it is sent; it was closed.
	ErrSlow = errors.New("peer does not read fast enough")
	// ErrLimit: a limit of the listener was exceeded; the text says which.
	ErrLimit = errors.New("limit exceeded")
	// ErrNotRunning: the transport is not started, or shut down.
	ErrNotRunning = errors.New("transport is not running")
	// ErrIdle: the peer was silent for longer than Limits.Idle.
	ErrIdle = errors.New("peer was idle for too long")
)

// Handler is the engine's side: it makes a session for each peer. It is a pointer, or another
// type that can be compared: a transport keeps a list of those that it owes a Settle.
type Handler interface {
	// Opened is called once for each new peer, before anything is read.
	Opened(p Peer) Session
	// Settle says that the calling reader has handed over all that was ready.
	// It may block on the log.
	Settle()
}

// Session holds the engine's state for one peer. Calls never overlap.
type Session interface {
	// Arrived takes the whole frames that one read yielded, lent until it
	// returns. It may block on the log, never on a peer.
	Arrived(in []command.Frame)
	// Closed is called once, last; err says why: io.EOF when the peer closed.
	Closed(err error)
}

// Identity is what the transport knows of who is at the other end.
type Identity struct {
	// Name is from a client certificate or a token, empty when unknown.
	Name string
	// TLS is true when the connection is encrypted.
	TLS bool
	// Zone and other attributes that the transport learned.
	Attributes map[string]string
}

// Peer is a connection, the same at both ends: a server calls its clients, too.
// All methods are safe for concurrent use.
type Peer interface {
	// ID is unique among the peers of the process since it started.
	ID() string
	// Remote is the other end's address as the broker stores it as born host.
	Remote() netip.AddrPort
	// Local is this end's address.
	Local() netip.AddrPort
	Identity() Identity
	// Send writes frames with one vectored write where the system allows. It
	// never blocks. The frames are lent until it returns. Errors: ErrClosed,
	// ErrSlow.
	Send(out ...command.Frame) error
	// Close closes the connection and returns at once; Session.Closed follows.
	Close() error
}

// Limits bound what peers can cost. Zero means the default in brackets.
type Limits struct {
	// Frame is the largest frame in bytes [16 MiB].
	Frame int
	// Header is the largest header of a frame in bytes [64 KiB].
	Header int
	// Connections is how many peers there can be at once [10,000].
	Connections int
	// PeerBytes is how much unsent data a peer can pile up [8 MiB]. What one Send brings
	// to a peer that has none is taken whatever its size: the largest answer must
	// arrive.
	PeerBytes int
	// TotalBytes is the same for all peers of a listener together [256 MiB].
	TotalBytes int64
	// ReadBytes bounds the memory of all read buffers together, so that many
	// peers with large half-read frames cannot take it all [256 MiB].
	ReadBytes int64
	// Idle closes a peer that sent nothing for so long [120 s]; negative: never.
	Idle time.Duration
}

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Frame, command.MaxFrame)
	def(&l.Header, 64<<10)
	def(&l.Connections, 10_000)
	def(&l.PeerBytes, 8<<20)
	if l.TotalBytes == 0 {
		l.TotalBytes = 256 << 20
	}
	if l.ReadBytes == 0 {
		l.ReadBytes = 256 << 20
	}
	if l.Idle == 0 {
		l.Idle = 120 * time.Second
	}
	return l
}

// Listen says where and how to serve.
type Listen struct {
	// Address is the transport's: "host:port" for TCP (port 0: any), a subject
	// prefix for NATS, a name for inproc.
	Address string
	Limits  Limits
	// TLS is what a listener shows and asks for, beside plain connections. nil: what
	// the transport's own configuration says, plain without one. A transport in a
	// process of its own refuses another one: keys do not cross.
	TLS *tls.Config

	_ struct{}
}

// Services is what a listener serves.
type Services struct {
	// Frames serves transports that move frames.
	Frames Handler
	// API serves transports that call typed operations; may be nil.
	API api.Broker
}

// Listener is a running listener. Safe for concurrent use.
type Listener interface {
	// Address is where it listens, with the real port.
	Address() string
	// Drain stops accepting and reading; answers under way are still sent. It
	// returns when all peers are closed, or with ctx's error.
	Drain(ctx context.Context) error
	// Close closes the listener and all its peers and waits for their Closed, so
	// not from within a Session. Twice is legal.
	Close() error
}

// Transport is the transport contract. All methods are safe for concurrent use.
type Transport interface {
	plugin.Component
	// Serve listens and returns when peers can connect. Peers are served until
	// Close or Shutdown; ctx bounds the call only. Errors: ErrNotRunning, ctx's;
	// all others name the address and what to do.
	Serve(ctx context.Context, l Listen, s Services) (Listener, error)
	// Capabilities tells the facets; constant from Build to Shutdown.
	Capabilities() Capabilities
}

// Capabilities are the optional abilities. A nil field: not offered.
type Capabilities struct {
	Dialer Dialer
	Mover  Mover
	// Health is offered by what hosts a transport, whatever the transport is: no
	// plugin describes it, and Facets does not name it.
	Health Health
	// Reloader is of transports in this process: one in another process reads
	// everything anew when that is replaced. No plugin describes it either.
	Reloader Reloader
}

// Names of the facets in a plugin.Description.
const (
	FacetDialer = "Dialer"
	FacetMover  = "Mover"
)

// Facets names the facets offered, sorted.
func (c Capabilities) Facets() []string {
	var all []string
	if c.Dialer != nil {
		all = append(all, FacetDialer)
	}
	if c.Mover != nil {
		all = append(all, FacetMover)
	}
	return all
}

// Dialer is the facet of transports that can connect: a broker to its name
// servers, a client to a broker.
type Dialer interface {
	// Dial connects; ctx bounds connecting. h.Opened is called before it
	// returns; Settle is called as on a server. tls is nil for what the transport's own
	// configuration says, plain without one. Errors: ErrNotRunning, ctx's; all others
	// name the address. Safe for concurrent use.
	Dial(ctx context.Context, address string, lim Limits, tls *tls.Config, h Handler) (Peer, error)
}

// Health is the facet of transports whose listeners may cease to serve and serve again
// without a call, as those in a process of their own do when it ends. Safe for
// concurrent use.
type Health interface {
	// Serving returns nil while all listeners serve, also when there is none, and else
	// why not, as an error that matches plugin.ErrUnavailable. It does not block.
	// Errors beside it: ErrNotRunning.
	Serving() error
}

// Reloader is the facet of transports with files that may be replaced, certificates
// mostly, and at which they look from time to time. Safe for concurrent use.
type Reloader interface {
	// Reload looks at the files now. What they hold counts for connections that begin
	// after it has returned. Whoever calls it says that they are whole. What was found,
	// and why what counted before still does, goes to the log. It reads local files and
	// does nothing while the transport is not running.
	Reload()
}

// Moving is a peer on its way from one transport to another.
type Moving struct {
	// File is the connection. Whoever has it last closes it.
	File *os.File
	// Read is what was read of it and not handed over: the beginning of a frame.
	Read []byte
}

// Mover is the facet of transports whose connections can go on in another transport
// of the same plugin, mostly in another process: a new version takes over without a
// client noticing. The giving transport must be running, and so must the taking
// one. All methods are safe for concurrent use.
type Mover interface {
	// GiveListener ends accepting at l and gives the listening socket. Nobody is
	// refused: who connects waits in the socket for the one who takes it. Peers of
	// l stay. It waits a moment for Opened of those that were accepted just now, so
	// that the caller knows of them and can have them given, too. One that has to say
	// first whether it speaks TLS, and does not, is closed: nothing of it was read.
	// One whose Opened takes longer may be opened later.
	GiveListener(l Listener) (*os.File, error)
	// GivePeer gives up p, between two calls of its session and when all that was
	// sent is written. Nothing is read or written any more and the session hears
	// nothing, not even Closed. Nobody may call Send meanwhile. On an error the
	// peer is as it was, or closed, which its session is told: ErrClosed when it
	// was closed before, ctx's error when that ended first, which closes it.
	GivePeer(ctx context.Context, p Peer) (Moving, error)
	// TakeListener is Serve at a listening socket that was given. It takes
	// possession of f, even when it fails.
	TakeListener(f *os.File, l Listen, s Services) (Listener, error)
	// TakePeer goes on with a peer: h.Opened is called before it returns, and what
	// follows is as for any peer. It belongs to l, or to the dialled ones with these
	// limits when l is nil. It takes possession of m, even when it fails.
	TakePeer(l Listener, lim Limits, m Moving, h Handler) (Peer, error)
}

// Params is what the host passes to a transport.
type Params struct {
	plugin.Settings
	// Distant says that the handlers are in another process: each Opened, Arrived
	// and Closed takes a round trip. A transport that serves many peers from one
	// goroutine should not do so then.
	Distant bool

	_ struct{}
}

// Factory makes transports.
type Factory = plugin.Factory[Params, Transport]

// NewFactory declares a transport plugin.
func NewFactory[C any, T Transport](
	name string,
	describe func(C) plugin.Description,
	newDefault func() C,
	newTransport func(ctx context.Context, p Params, cfg C) (T, error),
) Factory {
	return plugin.NewFactory(name, Contract, describe, newDefault, newTransport, func(t T) Transport { return t })
}
