package register

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
)

// permBoth is that of a broker that keeps nobody away.
const permBoth = command.PermRead | command.PermWrite

// maxPlain is the size in bytes above which a registration is compressed.
const maxPlain = 4 << 20

// encode writes the body of a registration and completes its header.
func encode(head *command.RegisterBrokerRequest, topics []command.TopicConfig, version command.DataVersion, permission int32) ([]byte, error) {
	var b command.RegisterBrokerBody
	b.Topics.DataVersion = version
	b.Topics.TopicConfigTable = make(map[string]command.TopicConfig, len(topics))
	for _, t := range topics {
		if message.IsInternal(t.TopicName) {
			continue
		}
		if permission != permBoth {
			t.Perm &= permission
		}
		b.Topics.TopicConfigTable[t.TopicName] = t
	}
	body, crc, err := b.Encode()
	if err != nil {
		return nil, err
	}
	if len(body) > maxPlain {
		if body, err = deflate(&b); err != nil {
			return nil, err
		}
		head.Compressed, crc = true, command.BodyCRC32(body)
	}
	if len(body) > command.MaxFrame-64<<10 {
		return nil, fmt.Errorf("the registration of %d topics takes %d bytes, more than a frame holds; delete topics that nobody uses", len(b.Topics.TopicConfigTable), len(body))
	}
	head.BodyCRC32 = crc
	return body, nil
}

// deflate writes RocketMQ's compressed form: pieces with a length before each.
// The topics' order flag and system flag have no place in it.
func deflate(b *command.RegisterBrokerBody) ([]byte, error) {
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	var buf []byte
	var failed error
	put := func(p []byte) {
		if _, err := z.Write(p); err != nil && failed == nil {
			failed = err // cannot be: out is memory
		}
	}
	number := func(n int) { put(binary.BigEndian.AppendUint32(nil, uint32(n))) }
	piece := func(p []byte) {
		number(len(p))
		put(p)
	}
	version, err := command.EncodeBody(b.Topics.DataVersion)
	if err != nil {
		return nil, err
	}
	piece(version)
	number(len(b.Topics.TopicConfigTable))
	for _, t := range b.Topics.TopicConfigTable {
		attributes, err := command.EncodeBody(t.Attributes)
		if err != nil {
			return nil, err
		}
		buf = fmt.Appendf(buf[:0], "%s %d %d %d %s %s", t.TopicName, t.ReadQueueNums, t.WriteQueueNums, t.Perm, t.TopicFilterType, attributes)
		piece(buf)
	}
	piece([]byte("[]")) // filter servers
	number(0)           // static topics
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), failed
}
