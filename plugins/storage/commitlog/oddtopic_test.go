package commitlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// TestOddTopics: a topic that cannot be a directory below consumequeue is refused,
// and nothing is written elsewhere; the largest queue id and odd but possible names
// work.
func TestOddTopics(t *testing.T) {
	for q, fine := range map[message.Queue]bool{
		{Topic: "T", ID: 1<<31 - 1}: true, {Topic: "a b"}: true, {Topic: "%RETRY%g", ID: 7}: true, {Topic: "...", ID: 1}: true,
		{Topic: "../../evil"}: false, {Topic: "a/b"}: false, {Topic: ".."}: false, {Topic: "."}: false, {Topic: ""}: false,
		{Topic: "a\x00b"}: false, {Topic: `a\b`}: false,
	} {
		t.Run(fmt.Sprintf("%q", q.Topic), func(t *testing.T) {
			d := newDisk(1)
			r := newRig(t, d, storage.Immediate, nil)
			require.NoError(t, r.send(queueN(0), 100))
			if err := r.send(q, 100); fine {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, storage.ErrUnsupported)
			}
			require.NoError(t, r.send(queueN(0), 100), "the store goes on")
			require.NoError(t, r.s.flushDerived(true))
			r.verify()
			r.kill(d)
			for range 2 {
				r.start()
				r.verify()
				r.stop()
			}
			for name := range files(t, d, "/") {
				require.True(t, strings.HasPrefix(name, rigDir+"/"), name)
			}
		})
	}
}

// TestDamagedTopic: no checksum covers a record's topic. A name that became a path
// is damage, and no directory is made of it.
func TestDamagedTopic(t *testing.T) {
	r, d := filledWith(t, 40, nil)
	x := message.Queue{Topic: "axxbxxc"}
	require.NoError(t, r.send(x, 100))
	bad := r.sent[len(r.sent)-1]
	for range 10 {
		require.NoError(t, r.send(queueN(1), 100))
	}
	r.kill(d)
	r.edit(bad.pos, func(f vfs.File, off int64) error {
		i := strings.Index(string(bad.bytes), "axxbxxc")
		_, err := f.WriteAt([]byte("../../c"), off+int64(i))
		return err
	})
	require.NoError(t, r.fs.RemoveAll(r.s.path.queues))
	r.start()
	r.without(bad.pos, bad.end())
	require.NotEmpty(t, r.s.State().Damaged)
	r.verify()
	for name := range files(t, d, "/") {
		require.True(t, strings.HasPrefix(name, rigDir+"/"), name)
	}
}
