//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStoreOfBroker: a broker's store is read beside it, checked and sealed when it
// was killed, and then says what the broker knew.
func TestStoreOfBroker(t *testing.T) {
	for _, kind := range []string{"commitlog", "pebble"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			s := standalone(t, dir, "--storage", kind, "--set", "maxHashSlotNum=500", "--set", "maxIndexNum=1000")
			var sent struct{ Messages int }
			tool(t, &sent, "bench", "produce", "--broker", s.addr("broker"), "--count", "500", "--size", "200", "--topic", "Kept", "--quiet")
			store := filepath.Join(dir, "store")
			var seen storeReport
			if kind == "commitlog" {
				tool(t, &seen, "store", "inspect", store)
				require.True(t, seen.Open)
				require.GreaterOrEqual(t, seen.Records, int64(500))
				for _, command := range []string{"verify", "repair", "seal"} {
					var out, errs bytes.Buffer
					require.Equal(t, exitFailure, run(t.Context(), []string{"store", command, store}, strings.NewReader(""), &out, &errs))
					want := fmt.Sprintf("a broker has the store open (%s is locked by process %d): stop it first", filepath.Join(store, "lock"), s.cmd.Process.Pid)
					require.Equal(t, 1, strings.Count(errs.String(), want), errs.String())
					require.NotContains(t, errs.String(), "vfs: ")
				}
			}
			s.signal(t, os.Kill)
			seen = storeReport{}
			tool(t, &seen, "store", "verify", store)
			require.True(t, seen.Sound, "%+v", seen.Findings)
			var sealed sealReport
			tool(t, &sealed, "store", "seal", store)
			require.True(t, sealed.Changed)
			topics, err := os.ReadFile(filepath.Join(store, "config", "topics.json"))
			require.NoError(t, err)
			require.Contains(t, string(topics), `"Kept"`)
			require.NoFileExists(t, filepath.Join(store, "abort"))
			seen = storeReport{}
			tool(t, &seen, "store", "verify", store)
			require.True(t, seen.Sound && seen.Closed, "%+v", seen.Findings)
			kept := int64(0)
			for _, q := range seen.Queues {
				if q.Topic == "Kept" {
					kept += q.Max - q.Min
				}
			}
			require.Equal(t, int64(500), kept)
			if kind == "commitlog" {
				sealed = sealReport{}
				tool(t, &sealed, "store", "seal", store)
				require.False(t, sealed.Changed)
			}
		})
	}
}
