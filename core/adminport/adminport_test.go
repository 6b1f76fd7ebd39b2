package adminport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/adminport"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestPages(t *testing.T) {
	m := adminport.NewMetrics()
	m.Meter().Counter("things_total", "Things.").Add(3)
	p := adminport.New(plugin.Settings{}, adminport.Off, m)
	h := p.Handler()

	code, body := get(t, h, "/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)

	code, body = get(t, h, "/")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "/readyz", "a person is told what there is")

	code, body = get(t, h, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "hardpoint_things_total 3")
	require.Contains(t, body, "go_goroutines ")

	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		code, _ = get(t, h, path)
		require.Equal(t, http.StatusOK, code, path)
	}
	os.Args = append(os.Args, "--set", "tls.server.keyPassword=s3cret")
	defer func() { os.Args = os.Args[:len(os.Args)-2] }()
	_, body = get(t, h, "/debug/pprof/cmdline")
	require.Equal(t, os.Args[0]+"\n", body, "the rest may hold passwords")
	code, _ = get(t, h, "/other")
	require.Equal(t, http.StatusNotFound, code)
}

func TestReadinessNamesWhatIsMissing(t *testing.T) {
	p := adminport.New(plugin.Settings{}, adminport.Off, adminport.NewMetrics())
	code, _ := get(t, p.Handler(), "/readyz")
	require.Equal(t, http.StatusOK, code, "no condition")

	fault := errors.New("recovering")
	p.Check("broker a", func() error { return fault })
	p.Check("name server", func() error { return nil })
	code, body := get(t, p.Handler(), "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "broker a: recovering\n", body)

	fault = nil
	code, _ = get(t, p.Handler(), "/readyz")
	require.Equal(t, http.StatusOK, code)
}

func TestPort(t *testing.T) {
	p := adminport.New(plugin.Settings{}, "127.0.0.1:0", adminport.NewMetrics())
	require.Empty(t, p.Address())
	require.NoError(t, p.Start(t.Context()))
	addr := p.Address()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/healthz")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "ok\n", string(body))

	other := adminport.New(plugin.Settings{}, addr, adminport.NewMetrics())
	require.ErrorContains(t, other.Start(t.Context()), "adminListen "+addr)
	require.NoError(t, other.Shutdown(t.Context()), "after a start that failed")

	require.NoError(t, p.Shutdown(t.Context()))
	require.NoError(t, p.Shutdown(t.Context()), "twice")
	require.Empty(t, p.Address())
	_, err = new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	require.Error(t, err)
}

func TestOff(t *testing.T) {
	p := adminport.New(plugin.Settings{}, adminport.Off, adminport.NewMetrics())
	require.NoError(t, p.Start(t.Context()))
	require.Empty(t, p.Address())
	require.NoError(t, p.Shutdown(t.Context()))
}

// A client that holds a request open does not hold up the stop for ever.
func TestShutdownCutsOffWhatIsLeft(t *testing.T) {
	p := adminport.New(plugin.Settings{}, "127.0.0.1:0", adminport.NewMetrics())
	begun, release := make(chan struct{}), make(chan struct{})
	p.Check("slow", func() error { close(begun); <-release; return nil })
	require.NoError(t, p.Start(t.Context()))
	nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Address())
	require.NoError(t, err)
	defer nc.Close()
	_, err = io.WriteString(nc, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Shutdown(ctx))
	_, err = nc.Read(make([]byte, 1))
	require.Error(t, err)
	close(release)
}

// Whoever reaches the port cannot have more scrapes under way than there is memory for.
func TestScrapesAreBounded(t *testing.T) {
	m := adminport.NewMetrics()
	inside, release := make(chan struct{}), make(chan struct{})
	m.Meter().Gauge("slow", "Slow.", func() float64 {
		inside <- struct{}{}
		<-release
		return 1
	})
	p := adminport.New(plugin.Settings{}, adminport.Off, m)
	const most = 4
	codes := make(chan int, most+1)
	scrape := func() {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		codes <- w.Code
	}
	for range most {
		go scrape()
		<-inside
	}
	go scrape()
	select {
	case code := <-codes:
		require.Equal(t, http.StatusServiceUnavailable, code)
	case <-inside:
		t.Error("one more is let in")
	}
	close(release)
	for range most {
		require.Equal(t, http.StatusOK, <-codes)
	}
}
