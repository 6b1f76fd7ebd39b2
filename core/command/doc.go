// Package command speaks the frames of RocketMQ's remoting protocol: cutting
// them out of a byte stream, reading and writing their headers in both
// encodings (JSON and the compact binary one), the request and response codes,
// the typed headers, and the JSON bodies.
//
// It knows no socket and matches no request with its response: transports move
// [Frame] values, the engine, the name server, the load generator and the admin
// tools read and write them with this package.
//
// The usual way in: [Split] cuts whole frames of a read buffer, a reusable
// [Header] decodes one of them without allocating, a typed header such as
// [SendRequest] takes its fields from there. The usual way out: [Begin] starts a
// header behind a byte slice, the [Writer] takes the fields, End patches the
// lengths.
//
//	var h command.Header
//	if err := h.Decode(&frame); err != nil { ... }
//	var req command.SendRequest
//	if err := req.Decode(&h); err != nil { ... }
//	w := command.Begin(buf[:0], frame.Type, command.RespSuccess, h.Opaque, command.FlagResponse)
//	resp.Append(&w)
//	out := command.Frame{Header: w.End(0)}
//
// Everything read from a peer is hostile until proven otherwise: no input makes
// this package panic, read out of range, recurse without bound or work in
// quadratic time.
package command
