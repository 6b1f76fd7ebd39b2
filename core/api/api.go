package api

import (
	"context"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
)

// Broker is what a broker can be asked for, whatever the protocol.
type Broker interface {
	// Send stores one message and returns when its promise is met.
	Send(ctx context.Context, r *SendRequest) (SendResult, error)
	// Pull reads messages of a queue; with Wait > 0 it waits for some.
	Pull(ctx context.Context, r *PullRequest) (PullResult, error)
	// Offset answers a question about a queue's offsets.
	Offset(ctx context.Context, q message.Queue, k OffsetKind, at time.Time) (int64, error)
	// Progress is the committed offset of a group in a queue: the next to
	// consume. ok is false when there is none.
	Progress(ctx context.Context, group string, q message.Queue) (offset int64, ok bool, err error)
	// Commit stores the progress of a group.
	Commit(ctx context.Context, group string, q message.Queue, offset int64) error
	// PutTopic creates or changes a topic.
	PutTopic(ctx context.Context, t Topic) error
	// Topics lists the topics that clients may see, sorted by name.
	Topics(ctx context.Context) ([]Topic, error)
}

// SendRequest is a message to be stored.
type SendRequest struct {
	Topic string
	// Queue is the queue id; negative: any write queue.
	Queue int32
	Body  []byte
	// Properties are the message's; UNIQ_KEY is added when absent.
	Properties map[string]string
	Flag       int32
	Born       time.Time // zero: now

	_ struct{}
}

// SendStatus is what an accepted message's promise came to.
type SendStatus uint8

const (
	SendOK SendStatus = iota
	FlushDiskTimeout
	FlushSlaveTimeout
	SlaveNotAvailable
)

// SendResult tells where a message is.
type SendResult struct {
	Status SendStatus
	// MessageID is the unique key, OffsetID names host and position.
	MessageID, OffsetID string
	Queue               message.Queue
	Offset              int64
}

// PullRequest asks for messages of a queue.
type PullRequest struct {
	// Group is the consumer group; its commits are not touched.
	Group  string
	Queue  message.Queue
	Offset int64
	Max    int32
	// Expression is a tag expression: "*", "a || b". Empty is "*".
	Expression string
	// Wait is how long to wait for the first message.
	Wait time.Duration

	_ struct{}
}

// PullResult has copies of the messages; they are the caller's.
type PullResult struct {
	Messages []Message
	// Next is where to go on; Min and Max are the ends of the queue.
	Next, Min, Max int64
}

// Message is a message as a consumer sees it.
type Message struct {
	Queue          message.Queue
	Offset         int64
	Position       message.Position
	MessageID      string
	Body           []byte
	Properties     map[string]string
	Flag           int32
	Born, Stored   time.Time
	ReconsumeTimes int32
}

// OffsetKind is a question about a queue.
type OffsetKind uint8

const (
	MinOffset OffsetKind = iota
	MaxOffset
	// FirstAtOrAfter is the first offset stored at or after the time.
	FirstAtOrAfter
	// LastAtOrBefore is the last offset stored at or before the time.
	LastAtOrBefore
)

// Topic is a topic's configuration.
type Topic struct {
	Name                    string
	ReadQueues, WriteQueues int32
	// Perm: 4 read, 2 write, 1 inherit.
	Perm  int32
	Order bool
	// Attributes as RocketMQ 5 has them, "message.type" and so on.
	Attributes map[string]string
}
