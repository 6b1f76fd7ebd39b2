package adminclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// ErrUnheard: a server did not answer at all; it is away, or not what was taken for
// it. Test with errors.Is.
var ErrUnheard = errors.New("it does not answer")

// DefaultTimeout is how long a server has for an answer when nothing else is said.
const DefaultTimeout = 5 * time.Second

// Options say whom a Client asks, and how.
type Options struct {
	// Dialer connects; needed. It must run as long as the Client.
	Dialer transport.Dialer
	// NameServers are host:port each; see [ParseAddresses]. Empty: only what needs
	// none can be asked.
	NameServers []string
	// Timeout bounds each request, its connecting included; 0: DefaultTimeout.
	Timeout time.Duration

	_ struct{}
}

// Client asks servers. It is safe for concurrent use.
type Client struct {
	links   *rpc.Links
	servers []string
	timeout time.Duration

	mu   sync.Mutex
	last int // index of the name server that answered last
}

// New makes a client. It connects when it is asked for something.
func New(o Options) *Client {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	return &Client{
		links:   rpc.NewLinks(func() transport.Dialer { return o.Dialer }, rpc.Options{}),
		servers: o.NameServers, timeout: o.Timeout,
	}
}

// Close closes all connections.
func (c *Client) Close() { c.links.Close() }

// NameServers are the addresses that the client was given.
func (c *Client) NameServers() []string { return c.servers }

// ParseAddresses reads host:port;host:port, with commas or blanks as well.
func ParseAddresses(text string) ([]string, error) {
	var out []string
	for _, a := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ',' || r == ' ' }) {
		if err := CheckAddress(a); err != nil {
			return nil, fmt.Errorf("%w; several have a semicolon between them", err)
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no address: write HOST:PORT, several with a semicolon between them")
	}
	return out, nil
}

// CheckAddress refuses what is no address of a server: HOST:PORT, with a port from 1 to
// 65535. The host may be empty, which is this machine, as whoever connects takes it, and
// whether it has a form that a name can have is left to who looks it up: the stricter
// check of the configuration is for values that are kept and given to others.
func CheckAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
			return nil
		}
	}
	return fmt.Errorf("%q is no address: write HOST:PORT, with a port from 1 to 65535", text)
}

// Fields is a typed header, such as [command.TopicRequest].
type Fields interface{ Append(w *command.Writer) }

// FieldFunc is a header for requests that have no type.
type FieldFunc func(*command.Writer)

// Append writes the fields.
func (f FieldFunc) Append(w *command.Writer) { f(w) }

// Error is what came of a request that failed. It matches ErrUnheard, or its cause is
// a [*rpc.CodeError].
type Error struct {
	Address string
	Request int32
	Err     error
}

// Error names the server and the request, and says when the server is of the other kind.
func (e *Error) Error() string {
	var code *rpc.CodeError
	if !errors.As(e.Err, &code) {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s %sanswers to %s: %v", e.Address, otherKind(e.Request, code.Code), command.RequestName(e.Request), e.Err)
}

// otherKind tells by a request that all servers of one kind serve that a server which does
// not know it is none of them.
func otherKind(request, answer int32) string {
	if answer != command.RespRequestCodeNotSupported {
		return ""
	}
	switch request {
	case command.ReqGetBrokerClusterInfo, command.ReqGetRouteInfoByTopic:
		return "is no name server (a broker?): it "
	case command.ReqGetBrokerRuntimeInfo:
		return "is no broker (a name server?): it "
	}
	return ""
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf is the response code of a server that refused, false for all other errors.
func CodeOf(err error) (int32, bool) {
	var code *rpc.CodeError
	if errors.As(err, &code) {
		return code.Code, true
	}
	return 0, false
}

// unheard is an error without an answer.
type unheard struct{ err error }

func (u *unheard) Error() string   { return u.err.Error() }
func (u *unheard) Unwrap() []error { return []error{ErrUnheard, u.err} }

// Ask sends a request to a server and waits for its answer, which says success.
// Errors are [*Error]. f and body may be nil.
func (c *Client) Ask(ctx context.Context, address string, code int32, f Fields, body []byte) (*rpc.Response, error) {
	r, err := c.Call(ctx, address, code, f, body)
	if err == nil && r.Err() != nil {
		r, err = nil, &Error{address, code, r.Err()}
	}
	return r, err
}

// Call is Ask for a request whose answers may say something else than success.
func (c *Client) Call(ctx context.Context, address string, code int32, f Fields, body []byte) (*rpc.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("nothing for %v (--timeout): %w", c.timeout, context.DeadlineExceeded))
	defer cancel()
	var fill func(*command.Writer)
	if f != nil {
		fill = f.Append
	}
	r, err := c.links.Call(ctx, address, rpc.Request(code, fill, body))
	switch {
	case errors.Is(err, rpc.ErrConnect):
		err = &unheard{err}
	case err != nil:
		err = &unheard{fmt.Errorf("asking %s for %s: %w", address, command.RequestName(code), err)}
	default:
		return r, nil
	}
	return nil, &Error{address, code, err}
}

// Get is Ask for an answer whose body is JSON.
func Get[T any](ctx context.Context, c *Client, address string, code int32, f Fields, body []byte) (v T, err error) {
	r, err := c.Ask(ctx, address, code, f, body)
	if err != nil {
		return v, err
	}
	return v, decode(r, address, code, &v)
}

func decode(r *rpc.Response, address string, code int32, v any) error {
	if err := command.DecodeBody(r.Body, v); err != nil {
		return &Error{address, code, fmt.Errorf("what %s answers to %s cannot be read: %w", address, command.RequestName(code), err)}
	}
	return nil
}

// ErrNoNameServer: no name server answers, or none is given. Test with errors.Is.
var ErrNoNameServer = errors.New("no name server answers")

// AskNameServer asks one name server after the other, until one answers, whatever it
// says: it begins with the one that answered last. When none does the error matches
// ErrNoNameServer and ErrUnheard.
func (c *Client) AskNameServer(ctx context.Context, code int32, f Fields, body []byte) (*rpc.Response, string, error) {
	if len(c.servers) == 0 {
		return nil, "", fmt.Errorf("%w: none is given", ErrNoNameServer)
	}
	c.mu.Lock()
	first := c.last
	c.mu.Unlock()
	var errs []error
	for i := range c.servers {
		at := (first + i) % len(c.servers)
		r, err := c.Ask(ctx, c.servers[at], code, f, body)
		if err == nil || !errors.Is(err, ErrUnheard) {
			c.mu.Lock()
			c.last = at
			c.mu.Unlock()
			return r, c.servers[at], err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, "", fmt.Errorf("%w: %w", ErrNoNameServer, errors.Join(errs...))
}

// GetFromNameServer is AskNameServer for an answer whose body is JSON.
func GetFromNameServer[T any](ctx context.Context, c *Client, code int32, f Fields, body []byte) (v T, err error) {
	r, server, err := c.AskNameServer(ctx, code, f, body)
	if err != nil {
		return v, err
	}
	return v, decode(r, server, code, &v)
}

// EachNameServer sends a request to all name servers, one after the other: they tell
// each other nothing. The error names those that failed.
func (c *Client) EachNameServer(ctx context.Context, code int32, f Fields, body []byte) error {
	var errs []error
	for _, server := range c.servers {
		if _, err := c.Ask(ctx, server, code, f, body); err != nil {
			errs = append(errs, fmt.Errorf("name server %w", err))
		}
	}
	return errors.Join(errs...)
}
