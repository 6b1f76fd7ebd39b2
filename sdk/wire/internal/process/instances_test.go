package process_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
)

func TestInstances(t *testing.T) {
	s := process.NewInstances[string](storage.ErrNotRunning)
	var begun []uint64
	begin := func(id uint64) { begun = append(begun, id) }
	a, err := s.Add("a", begin)
	require.NoError(t, err)
	b, err := s.Add("b", begin)
	require.NoError(t, err)
	require.NotEqual(t, a, b)
	require.Equal(t, []uint64{a, b}, begun)

	got, err := s.Get(a)
	require.NoError(t, err)
	require.Equal(t, "a", got)
	got, ok := s.Take(a)
	require.True(t, ok)
	require.Equal(t, "a", got)
	_, ok = s.Take(a)
	require.False(t, ok, "an instance is taken once")
	_, err = s.Get(a)
	require.ErrorIs(t, err, storage.ErrNotRunning)
	require.ErrorContains(t, err, "no open instance 1")

	c, err := s.Add("c", nil)
	require.NoError(t, err)
	require.NotContains(t, []uint64{a, b}, c, "a number is never given twice")
	refused := errors.New("not this one")
	require.ErrorIs(t, s.Hold(c, func(string) error { return refused }), refused)

	// They end at the same time: each waits for the other.
	var both sync.WaitGroup
	both.Add(2)
	require.ErrorIs(t, s.Close(func(i string) error {
		both.Done()
		both.Wait()
		if i == "c" {
			return refused
		}
		return nil
	}), refused)
	_, err = s.Add("d", func(uint64) { t.Error("none begins when all are closed") })
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.NoError(t, s.Close(func(string) error { return refused }), "there is none left")
}
