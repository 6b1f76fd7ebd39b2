//go:build !linux

package remoting

import "os"

// loop and socket do nothing here: connections are read and written as streams.
type loop struct{}

func startLoops(bool) ([]*loop, error) { return nil, nil }

func stopLoops([]*loop) {}

type socket struct{}

func (*peer) adopt() bool { return false }

func (p *peer) step() (more, arrived bool, err error) { return false, false, nil }

func (p *peer) carryOn(bool, bool, error) {}

func (*socket) watch(*peer) {}

func (*socket) write(parts [][]byte) (rest [][]byte, err error) { return parts, nil }

func (*socket) close() error { return nil }

func (*peer) drainLocked() {}

func (*peer) lingerSocket() {}

func (*peer) breakOff() {}

func (*socket) detach() *os.File { return nil }

func (*peer) giveSocket() {}
