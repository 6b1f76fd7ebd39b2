//go:build !linux && !darwin

package remoting

// rawIO does nothing here: connections are read and written as streams.
type rawIO struct{}

func (*rawIO) init(*peer) {}

func (p *peer) read() (n int, full bool, err error) { return p.readStream() }

func (*rawIO) write(parts [][]byte) (rest [][]byte, err error) { return parts, nil }
