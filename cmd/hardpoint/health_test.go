package main

import (
	"bytes"
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
	r, err := askHealth(t.Context(), s.URL)
	require.NoError(t, err)
	var out bytes.Buffer
	p := &program{stdout: &out}
	require.EqualError(t, p.printHealth(r, false), "broker a: starting")
	require.Empty(t, out.String())
	require.ErrorIs(t, p.printHealth(r, true), errReported)
	require.JSONEq(t, `{"url": "`+s.URL+`", "ok": false, "says": "broker a: starting"}`, out.String())
}
