package remoting

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// backlog is what the socket did not take, in order. Guarded by the peer's wmu.
type backlog struct {
	bufs  []*buffer
	bytes int
}

// add copies part. It returns false when b is used up.
func (o *backlog) add(part []byte, pools *pools, b *budget) bool {
	for len(part) > 0 {
		var tail *buffer
		if n := len(o.bufs); n > 0 {
			tail = o.bufs[n-1]
		}
		if tail == nil || tail.to == len(tail.b) {
			size := smallBuffer
			if tail != nil || len(part) > smallBuffer {
				size = baseBuffer
			}
			if tail = pools.get(size, b); tail == nil {
				return false
			}
			o.bufs = append(o.bufs, tail)
		}
		n := copy(tail.b[tail.to:], part)
		tail.to += n
		o.bytes += n
		part = part[n:]
	}
	return true
}

// take removes the first buffer, nil when there is none.
func (o *backlog) take() *buffer {
	if len(o.bufs) == 0 {
		return nil
	}
	buf := o.bufs[0]
	n := copy(o.bufs, o.bufs[1:])
	o.bufs[n] = nil
	o.bufs = o.bufs[:n]
	return buf
}

func (o *backlog) drop(pools *pools, b *budget) {
	for _, buf := range o.bufs {
		pools.put(buf, b)
	}
	*o = backlog{}
}

// keepParts is the longest list of pieces that a peer keeps for its next Send.
const keepParts = 256

// Send implements [transport.Peer].
func (p *peer) Send(out ...command.Frame) error {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	if p.cause != nil {
		return transport.ErrClosed
	}
	parts, total := p.parts[:0], 0
	for i := range out {
		parts = out[i].Parts(parts)
		total += out[i].Len()
	}
	rest := parts
	var err error
	if !p.draining && p.sock != nil {
		if rest, err = p.sock.write(parts); err != nil {
			p.failLocked(fmt.Errorf("writing to the peer: %w", err))
			err = fmt.Errorf("%w: %w", transport.ErrClosed, err)
		}
	}
	if err == nil && len(rest) > 0 {
		err = p.push(rest)
	}
	clear(parts) // what is lent must not be kept
	if p.parts = parts[:0]; cap(parts) > keepParts {
		p.parts = nil
	}
	if err != nil {
		return err
	}
	m := &p.g.t.metrics
	m.bytesOut.Add(uint64(total))
	m.framesOut.Add(uint64(len(out)))
	return nil
}

// push copies what the socket refused and sees to it that somebody writes it.
func (p *peer) push(parts [][]byte) error {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	if p.out.bytes > 0 && p.out.bytes+n > p.g.lim.PeerBytes {
		return p.slow(fmt.Errorf("%w: %d bytes wait for it and %d more came, limit %d", transport.ErrSlow, p.out.bytes, n, p.g.lim.PeerBytes))
	}
	for _, part := range parts {
		if !p.out.add(part, &p.g.t.pools, &p.g.total) {
			return p.slow(fmt.Errorf("%w: the backlogs of all peers together have reached %d bytes", transport.ErrSlow, p.g.lim.TotalBytes))
		}
	}
	if !p.draining {
		p.draining = true
		p.writers.Add(1)
		if p.sock != nil {
			p.drainLocked()
		} else {
			go p.drainStream()
		}
	}
	return nil
}

func (p *peer) slow(err error) error {
	p.failLocked(err)
	return err
}

// drainStream writes the backlog until it is empty or the connection ends.
func (p *peer) drainStream() {
	defer p.writers.Done()
	pools, total := &p.g.t.pools, &p.g.total
	wrote := 0
	for {
		p.wmu.Lock()
		p.out.bytes -= wrote
		buf := p.out.take()
		if buf == nil || p.cause != nil && !p.lingering {
			if buf != nil {
				pools.put(buf, total)
			}
			p.draining = false
			p.wmu.Unlock()
			return
		}
		p.wmu.Unlock()
		wrote = buf.to
		_, err := p.stream.Write(buf.b[:buf.to])
		pools.put(buf, total)
		p.written.Add(1)
		if err != nil {
			p.fail(fmt.Errorf("writing to the peer: %w", err))
		}
	}
}
