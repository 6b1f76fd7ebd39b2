//go:build !unix

package remoting

// canMove: sockets can be passed to another process.
const canMove = false
