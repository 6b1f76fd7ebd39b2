package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

const mib = 1 << 20

// filled is a body of so many bytes, of which no two pages are alike.
func filled(seed, size int) []byte {
	b := make([]byte, 0, size+8)
	for i := 0; len(b) < size; i++ {
		b = binary.BigEndian.AppendUint64(b, uint64(seed)<<32|uint64(i))
	}
	return b[:size]
}

// unique is the property of clients that makes the broker give none of its own, which
// would be another one in each run.
func unique(i int) string { return fmt.Sprintf("UNIQ_KEY\x01%032X\x02", i) }

// batched encodes two messages as a batch of exactly so many bytes; it gives their
// bodies, too.
func batched(size int) (out []byte, bodies [][]byte) {
	const head = 4 + 4 + 4 + 4 + 4 + 2 // size, magic, CRC, flag, size of the body; size of the properties
	for i, n := range []int{size / 3, size - size/3} {
		props := unique(1000 + i)
		body := filled(7+i, n-head-len(props))
		out = binary.BigEndian.AppendUint32(out, uint32(n))
		out = append(out, make([]byte, 12)...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
		out = append(out, body...)
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(props))), props...)
		bodies = append(bodies, body)
	}
	return out, bodies
}

// timeless is a record without what differs from run to run: position, times and
// addresses.
func timeless(v *message.View) [sha256.Size]byte {
	raw := bytes.Clone(v.Raw)
	clear(raw[28:36])
	clear(raw[40:72])
	return sha256.Sum256(raw)
}

// TestLargeMessages is BC-06: messages and batches of the largest size, many in one
// answer, and a recovery of more than 100 MiB; a store that is a process gives the
// same bytes as one that is not.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"commitlog", "pebble"} {
		for _, most := range []int{4 * mib, 16 * mib} {
			t.Run(fmt.Sprintf("%s/%d_MiB", store, most/mib), func(t *testing.T) {
				t.Parallel()
				inside := largeMessages(t, harness.Store{Name: store}, most)
				outside := largeMessages(t, harness.Store{Name: store, Process: true}, most)
				require.Equal(t, inside, outside, "the records of a store in process and of one that is a process")
			})
		}
	}
}

// largeMessages sends them and gives the records that came back, in their order.
func largeMessages(t *testing.T, s harness.Store, most int) (records [][sha256.Size]byte) {
	t.Helper()
	const topic, total = "large", 104 * mib
	// Without the race detector: it is about bytes, and about many of them.
	n := harness.New(t, harness.Options{Store: s, Set: []string{
		"mappedFileSizeCommitLog=64MiB", fmt.Sprintf("maxMessageSize=%d", most), "maxFrameSize=64MiB", "waitTimeMillsInSendQueue=30000",
		"maxTransferBytesOnMessageInMemory=64MiB", "maxTransferCountOnMessageInMemory=64",
		"maxTransferBytesOnMessageInDisk=64MiB", "maxTransferCountOnMessageInDisk=64",
	}})
	dial := func() *harness.Conn {
		c, err := harness.Dial(n.Addr)
		require.NoError(t, err)
		c.Frame = 64 * mib
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := dial()
	require.NoError(t, c.CreateTopic(topic, 1))
	var bodies [][]byte
	send := func(m harness.Send, holds ...[]byte) {
		m.Topic, m.Props = topic, m.Props+unique(len(bodies))
		r, err := c.Send(&m)
		require.NoError(t, err)
		require.EqualValues(t, len(bodies), r.QueueOffset)
		bodies = append(bodies, holds...)
	}
	props := ""
	for i := range 20 {
		props += fmt.Sprintf("property-%d\x01value of property %d\x02", i, i)
	}
	body := filled(1, most)
	send(harness.Send{Body: body, Props: props}, body)
	a, err := c.CallSend(&harness.Send{Topic: topic, Body: filled(1, most+1)})
	require.NoError(t, err)
	require.ErrorContains(t, a.Err(), fmt.Sprint(most), "one byte more is refused, with the limit")
	// Of a batch the limit counts the bytes in the log.
	batch, _ := batched(most)
	a, err = c.CallSend(&harness.Send{Topic: topic, Body: batch, Batch: true})
	require.NoError(t, err)
	var needs int
	_, err = fmt.Sscanf(string(a.Header.Remark()), "the batch needs %d bytes in the log", &needs)
	require.NoError(t, err, "%s", a.Header.Remark())
	size := 2*most - needs
	batch, _ = batched(size + 1)
	a, err = c.CallSend(&harness.Send{Topic: topic, Body: batch, Batch: true})
	require.NoError(t, err)
	require.ErrorContains(t, a.Err(), fmt.Sprintf("needs %d bytes in the log, at most %d", most+1, most))
	batch, both := batched(size)
	send(harness.Send{Body: batch, Batch: true}, both...)
	first := int64(len(bodies))
	sum := 2 * most
	for i := 0; i < 32 || sum < total; i++ {
		body := filled(100+i, mib)
		send(harness.Send{Body: body}, body)
		sum += len(body)
	}

	got := 0
	_, _, err = c.Pull(harness.Pull{Topic: topic, Offset: first, Max: 32}, func(v *message.View) error {
		require.True(t, bytes.Equal(bodies[first+int64(got)], v.Body), "body %d", first+int64(got))
		got++
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 32, got, "messages of 1 MiB in one answer")

	read := func(c *harness.Conn) (all [][sha256.Size]byte) {
		end, err := c.ReadQueue(topic, 0, 0, func(v *message.View) error {
			require.True(t, bytes.Equal(bodies[v.QueueOffset], v.Body), "body %d", v.QueueOffset)
			if v.QueueOffset == 0 {
				require.Contains(t, string(v.Properties), props)
			}
			all = append(all, timeless(v))
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, len(bodies), end)
		return all
	}
	before := read(c)
	n.Kill()
	n.Start()
	require.Equal(t, before, read(dial()), "after a recovery")
	n.Stop()
	return before
}

// TestStoreWithASmallLimit: a plugin that does not take the largest message is
// refused at the start, with both limits.
func TestStoreWithASmallLimit(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.WriteFile(script, []byte(fmt.Sprintf("#!/bin/sh\n%s=1 exec %q\n", smallEnv, self)), 0o700))
	n := harness.Prepare(t, harness.Options{Store: harness.Store{Name: "small"}, Set: []string{"plugins.storage.small.path=" + script}})
	require.ErrorContains(t, n.TryStart(), "ended before it was ready")
	require.Contains(t, n.Log(), "storage small takes records of at most 1048576 bytes, maxMessageSize is 4194304; make that smaller, or choose another store")
}
