package commitlog

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

type keyIndex struct{}

func newKeyIndex(*Store) *keyIndex                           { return nil }
func (k *keyIndex) reserve(int) error                        { return nil }
func (k *keyIndex) add([]message.Key)                        {}
func (k *keyIndex) run(context.Context)                      {}
func (k *keyIndex) close() error                             { return nil }
func (k *keyIndex) drain() error                             { return nil }
func (k *keyIndex) flush(int64, int64) error                 { return nil }
func (k *keyIndex) load(*recovery) (message.Position, error) { return 0, nil }
func (k *keyIndex) cut(message.Position) error               { return nil }
func (k *keyIndex) expire(message.Position) error            { return nil }
func (k *keyIndex) restore([]message.Key) error              { return nil }

// Find implements [storage.KeyIndex].
func (s *Store) Find(_ context.Context, q storage.KeyQuery, at []message.Position) ([]message.Position, error) {
	return at[:0], nil
}
