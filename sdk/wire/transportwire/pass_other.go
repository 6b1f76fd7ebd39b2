//go:build !unix

package transportwire

import (
	"errors"
	"net"
	"os"
)

// No transport offers the facet Mover on a system without passing of files.
func passFile(*net.UnixConn, uint64, *os.File) error { return errors.ErrUnsupported }

func receiveFile(*net.UnixConn) (uint64, *os.File, error) { return 0, nil, errors.ErrUnsupported }
