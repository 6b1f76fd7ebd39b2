package catalog

import (
	"errors"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
)

// sample is a state with some of everything.
func sample() *state {
	s := newPrivate()
	s.putTopic(command.TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6})
	s.putGroup(command.DefaultSubscriptionGroup("G"))
	s.offsets.set("G", message.Queue{Topic: "T", ID: 3}, 1<<40, true)
	s.locks.set(&lockEntry{group: "G", topic: "T", queue: 1, owner: "client", expiry: 99})
	return s
}

func image() []byte {
	w := &writer{}
	if err := sample().dump(w); err != nil {
		panic(err)
	}
	w.numbers(entryEnds, []string{"T"}, map[int32]int64{0: 7, 1: -1})
	w.names(entryTopicRemoved, "gone")
	return w.buf
}

// FuzzRecord: no body of a catalog record makes the reader panic or hang, and
// errors say what they are.
func FuzzRecord(f *testing.F) {
	f.Add(deltaBody(image()))
	f.Add(append([]byte{codecVersion, kindImage, 1, 0, 1}, image()...))
	f.Add([]byte{codecVersion, kindImage, 1, 2, 1})
	f.Add([]byte{codecVersion, kindDelta, entryOffsets, 4, 0, 0, 0xFF, 0x0F})
	f.Add([]byte{codecVersion, kindDelta, 200, 1, 0})
	f.Add([]byte{9, 9})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		_, rest, err := readHeader(body)
		if err == nil {
			err = entries(rest, newPrivate().applyEntry)
		}
		if err != nil && !errors.Is(err, ErrRecord) {
			t.Errorf("the error is no ErrRecord: %v", err)
		}
	})
}

// FuzzSnapshot: what decodes encodes to the same, anything else is ErrSnapshot.
func FuzzSnapshot(f *testing.F) {
	good := (&snapshot{logID: "log", next: 77, entries: image()}).encode()
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(snapshotMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSnapshot(b)
		if err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Errorf("the error is no ErrSnapshot: %v", err)
			}
			return
		}
		again, err := decodeSnapshot(s.encode())
		if err != nil || again.logID != s.logID || again.next != s.next || string(again.entries) != string(s.entries) {
			t.Errorf("%+v came back as %+v, %v", s, again, err)
		}
		_ = entries(s.entries, newPrivate().applyEntry)
	})
}

func TestImageRoundTrip(t *testing.T) {
	for _, size := range []int{1, 64, 1 << 20} {
		got := newPrivate()
		n := 0
		for _, part := range split(image(), size) {
			n += len(part)
			if err := entries(part, got.applyEntry); err != nil {
				t.Fatal(err)
			}
		}
		if n != len(image()) {
			t.Errorf("parts of %d bytes have %d of %d bytes", size, n, len(image()))
		}
		if (*got.topics.Load())["T"].Config.WriteQueueNums != 4 || (*got.groups.Load())["G"] == nil {
			t.Error("topic or group is gone")
		}
		if v, ok := got.offsets.get("G", message.Queue{Topic: "T", ID: 3}); !ok || v != 1<<40 {
			t.Error("progress is gone")
		}
		if l := got.locks.m[lockKey{"G", message.Queue{Topic: "T", ID: 1}}]; l == nil || l.owner != "client" || l.expiry != 99 {
			t.Error("the lock is gone")
		}
		if n := got.ends.m["T"]; len(n) != 2 || n[0] != 7 || n[1] != -1 {
			t.Errorf("the ends of queues are %v", n)
		}
	}
}

// FuzzFiles: a file that another broker wrote is taken whole or not at all, and
// what was taken can be written and taken again.
func FuzzFiles(f *testing.F) {
	f.Add(uint8(0), []byte(`{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"perm":6,"readQueueNums":4,"topicName":"T","writeQueueNums":4}}}`))
	f.Add(uint8(1), []byte(`{"dataVersion":{},"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":3}}}`))
	f.Add(uint8(2), []byte(`{"offsetTable":{"T@G":{0:5,"1":-7},"no group":{}}}`))
	f.Add(uint8(0), []byte(`{"topicConfigTable":null}`))
	f.Add(uint8(3), []byte(`{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","popShareQueueNum":3,"topic":"T"}}}}`))
	f.Add(uint8(1), make([]byte, 100))
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		name := fileNames[int(which)%len(fileNames)]
		parsed := func(b []byte) (*files, error) {
			c := &Catalog{s: newState()}
			c.files = files{c: c, texts: map[string]map[any][]byte{}}
			return &c.files, c.files.parse(name, b)
		}
		fs, err := parsed(b)
		if err != nil {
			if s := fs.c.s; len(*s.topics.Load())+len(*s.groups.Load())+len(s.offsets.m)+len(s.values.m) > 0 {
				t.Errorf("%s was refused (%v), and some of it was taken", name, err)
			}
			return
		}
		text, err := fs.content(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parsed(text); err != nil {
			t.Errorf("%s was taken, and what is written then is not: %v\n%s", name, err, text)
		}
	})
}
