package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// PollEvery is how often [Keeper.Watch] reads the files: new ones count within twice
// as long. RocketMQ looks twice a second whether theirs have changed.
const PollEvery = 2 * time.Second

// ErrNotValid: a certificate is not valid at this time. Test with errors.Is.
var ErrNotValid = errors.New("the certificate is not valid now")

// Keeper holds the newest good configuration of some files. All methods are safe for
// concurrent use.
type Keeper struct {
	files []string
	build func(texts) (*tls.Config, error)

	now atomic.Pointer[tls.Config]

	mu     sync.Mutex
	have   texts // what now was made from
	seen   texts // what was read last, if it is something else
	failed bool  // seen was told about
}

// NewServer reads the files of a server.
func NewServer(s Server) (*Keeper, error) { return newKeeper(s.files(), s.build) }

// NewClient reads the files of a client.
func NewClient(c Client) (*Keeper, error) { return newKeeper(c.files(), c.build) }

func newKeeper(files []string, build func(texts) (*tls.Config, error)) (*Keeper, error) {
	k := &Keeper{files: files, build: build}
	t, err := readAll(files)
	if err != nil {
		return nil, err
	}
	c, err := build(t)
	if err != nil {
		return nil, err
	}
	k.have = t
	k.now.Store(c)
	return k, nil
}

// Files are the paths that are watched; none when there is nothing to watch.
func (k *Keeper) Files() []string { return k.files }

// Config is the newest good configuration. It must not be changed.
func (k *Keeper) Config() *tls.Config { return k.now.Load() }

// ServerConfig is a configuration for listeners that always shows the newest
// certificate.
func (k *Keeper) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.Config(), nil },
	}
}

// NotAfter is when the certificate in use expires; zero without one.
func (k *Keeper) NotAfter() time.Time { return notAfter(k.Config()) }

func notAfter(c *tls.Config) time.Time {
	if len(c.Certificates) == 0 {
		return time.Time{}
	}
	return c.Certificates[0].Leaf.NotAfter
}

// Valid returns ErrNotValid, with the dates, when there is a certificate that is not
// valid at a time.
func (k *Keeper) Valid(at time.Time) error { return valid(k.Config(), at) }

func valid(c *tls.Config, at time.Time) error {
	if len(c.Certificates) == 0 {
		return nil
	}
	if l := c.Certificates[0].Leaf; at.Before(l.NotBefore) || at.After(l.NotAfter) {
		return fmt.Errorf("%w: that of %q is valid from %s to %s, and it is %s", ErrNotValid, l.Subject,
			l.NotBefore.UTC().Format(time.RFC3339), l.NotAfter.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	}
	return nil
}

// Check reads the files. changed: they were replaced, and what they hold now counts.
// An error says why what they hold does not; it is told once for each content.
// Nothing new counts, or is an error, before the second look in a row that finds it:
// files are replaced one after the other, and half a file may look whole, as a
// certificate without those of the authorities behind it does.
func (k *Keeper) Check(at time.Time) (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, err := k.look()
	if same(t, k.have) {
		k.seen, k.failed = nil, false
		return false, nil
	}
	if !same(t, k.seen) {
		k.seen, k.failed = t, false
		return false, nil
	}
	if k.failed {
		return false, nil
	}
	return k.take(t, err, at)
}

// Reload is [Keeper.Check] for somebody who says that the files are whole: the first
// look counts, and what is wrong is told although it was told before.
func (k *Keeper) Reload(at time.Time) (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, err := k.look()
	if same(t, k.have) {
		k.seen, k.failed = nil, false
		return false, nil
	}
	return k.take(t, err, at)
}

// look reads the files. What cannot be read is kept as what was found, its error.
func (k *Keeper) look() (texts, error) {
	t, err := readAll(k.files)
	if err != nil {
		t = texts{"": []byte(err.Error())}
	}
	return t, err
}

// take makes what was read, or failed to be with err, count if it can be used.
func (k *Keeper) take(t texts, err error, at time.Time) (bool, error) {
	var c *tls.Config
	if err == nil {
		c, err = k.build(t)
	}
	if err == nil {
		// A certificate that is not valid is no better than one that is not either.
		if err = valid(c, at); err != nil && k.Valid(at) != nil {
			err = nil
		}
	}
	if err == nil {
		k.have, k.seen, k.failed = t, nil, false
		k.now.Store(c)
		return true, nil
	}
	k.seen, k.failed = t, true
	return false, err
}

func same(a, b texts) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// Watch looks after the files until stop is closed, and tells of each change and of
// each error of [Keeper.Check].
func (k *Keeper) Watch(stop <-chan struct{}, clock plugin.Clock, tell func(err error)) {
	if len(k.files) == 0 {
		return
	}
	timer := clock.NewTimer(PollEvery)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C():
		}
		if changed, err := k.Check(clock.Now()); changed || err != nil {
			tell(err)
		}
		timer.Reset(PollEvery)
	}
}
