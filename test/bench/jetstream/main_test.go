package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/internal/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serving starts a server that ends with the test and returns its address.
func serving(t *testing.T, always bool) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	at, done := make(chan string, 1), make(chan error, 1)
	dir := t.TempDir()
	go func() { done <- serve(ctx, "127.0.0.1:0", dir, always, func(a string) { at <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-at:
		return a
	case err := <-done:
		done <- nil
		t.Fatalf("the server ended: %v", err)
		return ""
	}
}

func TestLoads(t *testing.T) {
	for _, always := range []bool{false, true} {
		at := serving(t, always)
		for _, depth := range []int{1, 8} {
			res, err := produce(t.Context(), bench.Options{Broker: at, Topic: "T", Connections: 2, Depth: depth, Size: 50, Count: 100})
			require.NoError(t, err)
			require.EqualValues(t, 100, res.Messages)
			require.EqualValues(t, 5000, res.Bytes)
			require.EqualValues(t, 100, res.Latency.Count)
		}
		for _, batch := range []int{32, 0} {
			res, err := consume(t.Context(), bench.Options{Broker: at, Topic: "T", Connections: 2, Depth: 1, Batch: batch, Count: 150})
			require.NoError(t, err)
			require.Positive(t, res.Messages)
			require.Equal(t, res.Messages*50, res.Bytes)
		}
		_, err := consume(t.Context(), bench.Options{Broker: at, Topic: "Empty", Connections: 1, Depth: 1, Batch: 1, Count: 1})
		require.ErrorContains(t, err, "empty")
	}
}

func TestBadArguments(t *testing.T) {
	ctx := t.Context()
	require.ErrorIs(t, run(ctx, nil), errUsage)
	require.ErrorIs(t, run(ctx, []string{"dance"}), errUsage)
	require.ErrorContains(t, run(ctx, []string{"serve"}), "--dir")
	require.ErrorContains(t, run(ctx, []string{"produce", "--broker", "127.0.0.1:1", "--count", "1"}), "nothing answers at 127.0.0.1:1")
}
