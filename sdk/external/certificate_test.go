package external

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// TestStrangers: the control connection of a process is for the host that started it.
// Whoever finds its socket, with another certificate or with none, hears nothing.
func TestStrangers(t *testing.T) {
	host, certificate, err := newCertificate()
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	sockets, remove, err := wire.SocketDir()
	require.NoError(t, err)
	defer remove()
	cmd := exec.Command(exe)
	cookie := wire.Handshake()
	cmd.Env = append(environment(nil), "HARDPOINT_TEST_ROLE=serve", cookie.MagicCookieKey+"="+cookie.MagicCookieValue,
		certificateEnv+"="+certificate, goplugin.EnvUnixSocketDir+"="+sockets, "PLUGIN_PROTOCOL_VERSIONS=1")
	in, err := cmd.StdinPipe() // its end would be the end of the process
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	parts := strings.Split(strings.TrimSpace(line), "|") // core|version|network|address|grpc|certificate
	require.GreaterOrEqual(t, len(parts), 6, line)
	der, err := base64.RawStdEncoding.DecodeString(parts[5])
	require.NoError(t, err)
	theirs, err := x509.ParseCertificate(der)
	require.NoError(t, err)

	// first is what the process says to who connects so; a server of HTTP/2 speaks first.
	first := func(cfg *tls.Config) (string, error) {
		c, err := net.Dial(parts[2], parts[3])
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		if cfg != nil {
			cfg.RootCAs.AddCert(theirs)
			cfg.NextProtos = []string{"h2"}
			c = tls.Client(c, cfg)
		}
		if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
			return "", err
		}
		b := make([]byte, 9)
		n, err := io.ReadFull(c, b)
		return string(b[:n]), err
	}
	said, err := first(host)
	require.NoError(t, err)
	require.Equal(t, byte(4), said[3], "SETTINGS of HTTP/2")
	other, _, err := newCertificate()
	require.NoError(t, err)
	_, err = first(other)
	require.Error(t, err, "another host's certificate")
	bare := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
	_, err = first(bare)
	require.Error(t, err, "no certificate")
	said, err = first(nil)
	require.Error(t, err, "no TLS at all: %q", said)
}
