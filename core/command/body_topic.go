package command

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// Bits of the permission of a topic or a broker (RocketMQ's PermName). PermInherit is of
// topics that others are made like.
const (
	PermInherit int32 = 1
	PermWrite   int32 = 2
	PermRead    int32 = 4
)

// TopicConfig is a topic as a broker knows it.
type TopicConfig struct {
	Attributes      StringMap `json:"attributes"`
	Order           bool      `json:"order"`
	Perm            int32     `json:"perm"` // PermRead, PermWrite, PermInherit
	ReadQueueNums   int32     `json:"readQueueNums"`
	TopicFilterType string    `json:"topicFilterType"` // SINGLE_TAG or MULTI_TAG
	TopicName       string    `json:"topicName"`
	TopicSysFlag    int32     `json:"topicSysFlag"`
	WriteQueueNums  int32     `json:"writeQueueNums"`
}

// TopicConfigSerializeWrapper is the body of GET_ALL_TOPIC_CONFIG (21) and the
// heart of a registration. 4.x writes the first two fields only.
type TopicConfigSerializeWrapper struct {
	DataVersion        DataVersion            `json:"dataVersion"`
	TopicConfigTable   map[string]TopicConfig `json:"topicConfigTable"`
	MappingDataVersion *DataVersion           `json:"mappingDataVersion,omitempty"`
	// The mapping tables of static topics, unread.
	TopicQueueMappingDetailMap map[string]json.RawMessage `json:"topicQueueMappingDetailMap,omitempty"`
	TopicQueueMappingInfoMap   map[string]json.RawMessage `json:"topicQueueMappingInfoMap,omitempty"`
}

// MarshalJSON writes an empty table as {}.
func (t TopicConfigSerializeWrapper) MarshalJSON() ([]byte, error) {
	type plain TopicConfigSerializeWrapper
	if t.TopicConfigTable == nil {
		t.TopicConfigTable = map[string]TopicConfig{}
	}
	return EncodeBody(plain(t))
}

// TopicConfigList is the body of UPDATE_AND_CREATE_TOPIC_LIST (18).
type TopicConfigList struct {
	Topics []TopicConfig `json:"topicConfigList"`
}

// RegisterBrokerBody is the body of REGISTER_BROKER (103).
type RegisterBrokerBody struct {
	FilterServerList []string                    `json:"filterServerList"`
	Topics           TopicConfigSerializeWrapper `json:"topicConfigSerializeWrapper"`
}

// MarshalJSON writes [] for no filter servers.
func (b RegisterBrokerBody) MarshalJSON() ([]byte, error) {
	type plain RegisterBrokerBody
	b.FilterServerList = list(b.FilterServerList)
	return EncodeBody(plain(b))
}

// maxInflated bounds an inflated registration, in bytes.
const maxInflated = 64 << 20

// ErrBodyCRC: the body of a registration does not have the CRC of its header.
var ErrBodyCRC = errors.New("crc32 not match")

// BodyCRC32 is RocketMQ's CRC of a body: CRC-32 (IEEE) without the sign bit.
func BodyCRC32(body []byte) int32 { return int32(crc32.ChecksumIEEE(body) & 0x7fffffff) }

// DecodeRegisterBody reads the body of REGISTER_BROKER in whichever form header
// and sender version say, after checking its CRC if there is one. No body is an
// empty registration. Errors are ErrBodyCRC or wrap ErrBody.
func DecodeRegisterBody(req *RegisterBrokerRequest, version int32, body []byte) (*RegisterBrokerBody, error) {
	if req.BodyCRC32 != 0 {
		if got := BodyCRC32(body); got != req.BodyCRC32 {
			return nil, fmt.Errorf("%w: header says %d, body has %d", ErrBodyCRC, req.BodyCRC32, got)
		}
	}
	b := &RegisterBrokerBody{}
	var err error
	switch {
	case len(body) == 0:
	case version < Version3011:
		err = DecodeBody(body, &b.Topics)
	case req.Compressed:
		err = b.inflate(version, body)
	default:
		err = DecodeBody(body, b)
	}
	if err != nil {
		return nil, err
	}
	if b.Topics.TopicConfigTable == nil {
		b.Topics.TopicConfigTable = map[string]TopicConfig{}
	}
	return b, nil
}

// Encode writes the plain form and its CRC for the header.
func (b *RegisterBrokerBody) Encode() (body []byte, crc int32, err error) {
	if body, err = EncodeBody(b); err != nil {
		return nil, 0, err
	}
	return body, BodyCRC32(body), nil
}

func (b *RegisterBrokerBody) inflate(version int32, body []byte) error {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: compressed registration: %w", ErrBody, err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxInflated+1))
	if err != nil {
		return fmt.Errorf("%w: compressed registration: %w", ErrBody, err)
	}
	if len(plain) > maxInflated {
		return fmt.Errorf("%w: compressed registration of more than %d bytes", ErrBody, maxInflated)
	}
	c := cutter{rest: plain}
	c.json(&b.Topics.DataVersion)
	b.Topics.TopicConfigTable = map[string]TopicConfig{}
	for n := c.count(); n > 0 && c.err == nil; n-- {
		t, err := parseTopicConfig(string(c.piece()))
		if c.err == nil && err != nil {
			return err
		}
		if c.err == nil {
			b.Topics.TopicConfigTable[t.TopicName] = t
		}
	}
	c.json(&b.FilterServerList)
	if version >= Version500 && len(c.rest) > 0 {
		n := c.count()
		if n > 0 {
			b.Topics.TopicQueueMappingInfoMap = map[string]json.RawMessage{}
		}
		for ; n > 0 && c.err == nil; n-- {
			var info json.RawMessage
			var name struct {
				Topic string `json:"topic"`
			}
			piece := c.piece()
			if c.err == nil {
				c.keep(DecodeBody(piece, &info))
				c.keep(DecodeBody(piece, &name))
				b.Topics.TopicQueueMappingInfoMap[name.Topic] = info
			}
		}
	}
	return c.err
}

// cutter takes length-prefixed pieces and keeps the first error.
type cutter struct {
	rest []byte
	err  error
}

func (c *cutter) keep(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *cutter) number() int64 {
	if c.err != nil || len(c.rest) < 4 {
		c.keep(fmt.Errorf("%w: compressed registration is cut off", ErrBody))
		return 0
	}
	n := int64(int32(binary.BigEndian.Uint32(c.rest)))
	c.rest = c.rest[4:]
	return n
}

// count is the number of pieces that follow; each takes four bytes at least.
func (c *cutter) count() int64 {
	n := c.number()
	if n < 0 || n > int64(len(c.rest)/4) {
		c.keep(fmt.Errorf("%w: compressed registration: %d entries in %d bytes", ErrBody, n, len(c.rest)))
		return 0
	}
	return n
}

func (c *cutter) piece() []byte {
	n := c.number()
	if n < 0 || n > int64(len(c.rest)) {
		c.keep(fmt.Errorf("%w: compressed registration: entry of %d bytes, %d are left", ErrBody, n, len(c.rest)))
		return nil
	}
	p := c.rest[:n]
	c.rest = c.rest[n:]
	return p
}

func (c *cutter) json(v any) {
	if p := c.piece(); c.err == nil && len(p) > 0 {
		c.keep(DecodeBody(p, v))
	}
}

// parseTopicConfig reads TopicConfig.encode's text: name, read, write, perm and
// filter type separated by one blank each, then the attributes as JSON.
func parseTopicConfig(s string) (TopicConfig, error) {
	f := strings.SplitN(s, " ", 6)
	if len(f) < 5 || f[0] == "" {
		return TopicConfig{}, fmt.Errorf("%w: topic config %q has %d of 5 parts", ErrBody, clip([]byte(s)), len(f))
	}
	t := TopicConfig{TopicName: f[0], TopicFilterType: f[4]}
	for i, to := range []*int32{&t.ReadQueueNums, &t.WriteQueueNums, &t.Perm} {
		n, why := parseInt32([]byte(f[i+1]))
		if why != "" {
			return TopicConfig{}, fmt.Errorf("%w: topic config %q: %q %s", ErrBody, clip([]byte(s)), f[i+1], why)
		}
		*to = n
	}
	if len(f) == 6 && strings.TrimSpace(f[5]) != "" {
		if err := DecodeBody([]byte(f[5]), &t.Attributes); err != nil {
			return TopicConfig{}, fmt.Errorf("attributes of topic %q: %w", t.TopicName, err)
		}
	}
	return t, nil
}
