package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
)

// background outlives the test's own context, which is done in Cleanup.
func background(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

func splitKeys(s string) []string { return strings.Fields(s) }

func queue(topic string, id int32) message.Queue { return message.Queue{Topic: topic, ID: id} }

// one is a group of one message with a body of n bytes that tells it apart.
func one(q message.Queue, n int) []Message { return []Message{{Queue: q, Body: body(n, q.String())}} }

// many is a group of count messages.
func many(q message.Queue, count, n int) []Message {
	var out []Message
	for i := range count {
		out = append(out, Message{Queue: q, Body: body(n, fmt.Sprint(q, i))})
	}
	return out
}

// body makes n bytes from a text.
func body(n int, text string) []byte {
	if text == "" {
		text = "-"
	}
	return bytes.Repeat([]byte(text), n/len(text)+1)[:n]
}

// singles makes a group of each message.
func singles(msgs []Message) [][]Message {
	out := make([][]Message, len(msgs))
	for i := range msgs {
		out[i] = msgs[i : i+1]
	}
	return out
}
