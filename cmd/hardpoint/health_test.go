package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHealthSaysWhy: the reasons of a process that is not ready are the error.
func TestHealthSaysWhy(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("broker a: starting\n"))
	}))
	t.Cleanup(s.Close)
	_, err := askHealth(t.Context(), s.URL)
	require.EqualError(t, err, "broker a: starting")
}
