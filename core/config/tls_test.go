package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the keys of TLS say reaches the transport under its own names, and the name
// server beside the broker has the same.
func TestTLSReachesTheTransport(t *testing.T) {
	l, err := loadText(t, Standalone, "broker.conf", strings.Join([]string{
		"tls.server.mode = ENFORCING", "tls.server.certPath=/c.pem", "tls.server.keyPath=/k.pem", "tls.server.keyPassword=hunter2", "tls.server.need.client.auth=require",
		"tls.server.authClient=true", "tls.server.trustCertPath=/ca.pem", "tls.client.authServer=true", "tls.client.trustCertPath=/ca.pem"}, "\n"))
	require.NoError(t, err)
	require.Empty(t, l.Warnings)
	raw, err := l.Config.PluginRaw("transport", "remoting")
	require.NoError(t, err)
	require.JSONEq(t, `{"tlsMode":"enforcing","tlsCertFile":"/c.pem","tlsKeyFile":"/k.pem","tlsKeyPassword":"hunter2","tlsClientAuth":"require",
		"tlsVerifyClients":true,"tlsClientCAFile":"/ca.pem","dialTLS":true,"dialVerify":true,"dialCAFile":"/ca.pem"}`, string(raw))
	require.NotContains(t, string(l.Properties()), "hunter2")
	for _, r := range l.Show() {
		require.NotContains(t, r.Value, "hunter2", r.Key)
	}

	l, err = loadText(t, Broker, "broker.conf", "namesrvAddr=a:1\n")
	require.NoError(t, err)
	raw, err = l.Config.PluginRaw("transport", "remoting")
	require.NoError(t, err)
	require.Nil(t, raw, "the transport has the same defaults")
	require.Equal(t, TLSPermissive, l.Config.TLS.Mode)
}

// The groups with secrets tell none when they are printed, by mistake or by who embeds
// the broker.
func TestSecretsAreNotPrinted(t *testing.T) {
	n := 0
	for _, k := range keyTable().keys {
		if !k.Secret || k.Status != Honoured {
			continue
		}
		n++
		l, err := loadText(t, Standalone, "broker.conf", k.Name+"=authorization:hunter2\n")
		require.NoError(t, err, k.Name)
		c := &l.Config
		for _, printed := range []string{fmt.Sprintf("%+v", c.TLS), fmt.Sprintf("%#v", c.TLS), fmt.Sprintf("%+v", c.Metrics), fmt.Sprintf("%#v", c.Metrics)} {
			require.NotContains(t, printed, "hunter2", k.Name)
		}
		require.False(t, bytes.Contains(l.Properties(), []byte("hunter2")), k.Name)
		for _, r := range l.Show() {
			require.NotContains(t, r.Value, "hunter2", k.Name)
		}
	}
	require.GreaterOrEqual(t, n, 4)
}

func TestTLSDerived(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "tls.server.mode=enforcing": true, "tls.server.mode=enforcing\ntls.enable=false": false, "tls.enable=true": true, "useTLS=true": true, "useTLS=false": false,
		"tls.server.mode=enforcing\nuseTLS=false": false,
	} {
		l, err := loadText(t, Broker, "broker.conf", text)
		require.NoError(t, err, text)
		require.Equal(t, want, l.Config.TLS.Enable, text)
	}
	for text, want := range map[string]string{
		"tls.enable=true\nuseTLS=false":                                            "useTLS",
		"tls.test.mode.enable=true\ntls.server.certPath=/c\ntls.server.keyPath=/k": "RocketMQ would not use then",
		"transport=inproc\ntls.server.mode=enforcing":                              "its own configuration",
		"transport=inproc\ntls.enable=true":                                        "its own configuration",
		"transport=inproc\ntls.server.certPath=/c":                                 "its own configuration",
		"tls.server.mode=on":                                                       "disabled, permissive or enforcing",
	} {
		_, err := loadText(t, Broker, "broker.conf", text)
		require.ErrorContains(t, err, want, text)
	}
	l, err := loadText(t, Broker, "broker.conf", "namesrvAddr=a:1\ntransport=inproc\ntls.server.mode=disabled\ntls.enable=false\nuseTLS=false\ntls.server.certPath=\n")
	require.NoError(t, err, "it asks for nothing")
	require.Empty(t, l.Warnings)
	l, err = loadText(t, Broker, "broker.conf", "tls.server.mode=permissive\ntls.test.mode.enable=false\ntls.client.authServer=true\n")
	require.NoError(t, err)
	require.True(t, warned(l, "tls.server.mode"))
	require.True(t, warned(l, "tls.enable"))
}

// The file of RocketMQ's TLS settings counts where it was named.
func TestTLSFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.ToSlash(filepath.Join(dir, "tls.properties"))
	put := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	named := "tls.config.file=" + path + "\n"
	put("tls.test.mode.enable=false\ntls.server.certPath=/c\ntls.server.keyPath=/k\ntls.server.mode=enforcing\n")
	l, err := loadText(t, Broker, "broker.conf", named)
	require.NoError(t, err)
	require.Equal(t, "/c", l.Config.TLS.ServerCert)
	require.True(t, l.Config.TLS.Enable)
	require.Equal(t, path+":2", l.Origin("tls.server.certPath").String())

	l, err = Load(Options{Mode: Broker, File: write(t, "broker.conf", named), Env: []string{"HARDPOINT_TLS__SERVER__MODE=permissive"}})
	require.NoError(t, err)
	require.Equal(t, TLSPermissive, l.Config.TLS.Mode, "a later layer counts more")
	require.Equal(t, "/c", l.Config.TLS.ServerCert)

	for text, want := range map[string]string{
		named + "tls.server.certPath=/other\n": "remove one",
		"tls.config.file=/does/not/exist":      "exist",
	} {
		_, err = loadText(t, Broker, "broker.conf", text)
		require.ErrorContains(t, err, want)
	}
	for text, want := range map[string]string{"brokerName=a\n": "keys of TLS only", "tls.config.file=b\n": "keys of TLS only", "tls.server.cert=a\n": "tls.properties:1", "tls.enable=maybe": "true or false"} {
		put(text)
		_, err = loadText(t, Broker, "broker.conf", named)
		require.ErrorContains(t, err, want)
	}
}

// A fault that the transport finds is told where the key was written.
func TestTLSFaultHasItsPlace(t *testing.T) {
	l, err := loadText(t, Broker, "broker.conf", "namesrvAddr=a:1\ntls.server.certPath=/c\n")
	require.NoError(t, err)
	err = l.Config.PluginError("transport", "remoting", os.ErrInvalid)
	require.ErrorIs(t, err, os.ErrInvalid)
	err = l.Config.PluginError("transport", "remoting", &os.PathError{Op: "tlsCertFile", Path: "x", Err: os.ErrInvalid})
	require.ErrorContains(t, err, "broker.conf:2: ")
}
