package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/tlstest"
)

// The keys in testdata are one key, as OpenSSL 3 encrypts it in each way.
func TestKeys(t *testing.T) {
	cert := filepath.Join("testdata", "cert.pem")
	for file, want := range map[string]string{
		"plain.pem": "", "sec1.pem": "", "aes-128-cbc.pem": "", "aes-192-cbc.pem": "", "aes-256-cbc.pem": "", "sha1.pem": "", "sha512.pem": "",
		"des3.pem": "openssl pkcs8", "scrypt.pem": "openssl pkcs8", "pbes1.pem": "openssl pkcs8", "old.pem": "openssl pkcs8",
		"rsa1.pem": "does not belong to", "cert.pem": "no private key",
	} {
		_, err := NewServer(Server{CertFile: cert, KeyFile: filepath.Join("testdata", file), KeyPassword: "secret"})
		if want == "" {
			require.NoError(t, err, file)
			continue
		}
		require.ErrorContains(t, err, want, file)
		require.ErrorContains(t, err, file)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := NewServer(Server{CertFile: filepath.Join("testdata", "rsacert.pem"), KeyFile: filepath.Join("testdata", "rsa1.pem")})
	require.NoError(t, err)
	encrypted := filepath.Join("testdata", "aes-256-cbc.pem")
	_, err = NewServer(Server{CertFile: cert, KeyFile: encrypted, KeyPassword: "wrong"})
	require.ErrorIs(t, err, errPassword)
	_, err = NewServer(Server{CertFile: cert, KeyFile: encrypted})
	require.ErrorContains(t, err, "no password is given")
	_, err = NewServer(Server{CertFile: t.TempDir(), KeyFile: encrypted})
	require.ErrorContains(t, err, "no regular file")
	der := filepath.Join(t.TempDir(), "der")
	text, err := os.ReadFile(cert)
	require.NoError(t, err)
	b, _ := pem.Decode(text)
	require.NoError(t, os.WriteFile(der, b.Bytes, 0o600))
	_, err = NewServer(Server{CertFile: der, KeyFile: encrypted, KeyPassword: "secret"})
	require.ErrorContains(t, err, "openssl x509 -inform der")
}

func TestSelfSigned(t *testing.T) {
	k, err := NewServer(Server{})
	require.NoError(t, err)
	require.Empty(t, k.Files())
	require.NoError(t, k.Valid(time.Now()))
	require.ErrorIs(t, k.Valid(time.Now().AddDate(selfSignedYears, 0, 1)), ErrNotValid)
	k.Watch(nil, nil, nil) // there is nothing to watch
}

// Two files of which one is new do not count until both are, nor does what may be half
// of a file.
func TestCheck(t *testing.T) {
	a := tlstest.New(t)
	old, fresh := a.Issue(t, "server", nil), a.Issue(t, "server", nil)
	dir := t.TempDir()
	p := tlstest.Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return b
	}
	put := func(from, to string) { require.NoError(t, os.WriteFile(to, read(from), 0o600)) }
	put(old.Cert, p.Cert)
	put(old.Key, p.Key)
	k, err := NewServer(Server{CertFile: p.Cert, KeyFile: p.Key})
	require.NoError(t, err)
	first := k.Config()
	now := time.Now()
	check := func(wantChanged bool) {
		t.Helper()
		changed, err := k.Check(now)
		require.NoError(t, err)
		require.Equal(t, wantChanged, changed)
	}
	check(false)
	put(fresh.Cert, p.Cert)
	check(false)
	require.Same(t, first, k.Config())
	put(fresh.Key, p.Key)
	check(false)
	check(true)
	require.NotSame(t, first, k.Config())
	check(false)
	second := k.Config()
	both := append(read(fresh.Cert), read(a.CAFile)...)
	for _, half := range [][]byte{nil, read(fresh.Cert), both[:len(both)/2], both[:len(both)-1]} {
		require.NoError(t, os.WriteFile(p.Cert, half, 0o600))
		check(false)
		require.Same(t, second, k.Config())
	}
	require.NoError(t, os.WriteFile(p.Cert, both, 0o600))
	check(false)
	check(true)
	require.Len(t, k.Config().Certificates[0].Certificate, 2)
	put(fresh.Cert, p.Cert)
	check(false)
	check(true)

	put(old.Cert, p.Cert)
	check(false)
	_, err = k.Check(now)
	require.ErrorContains(t, err, "does not belong to")
	check(false)
	put(fresh.Cert, p.Cert) // put back
	check(false)
	put(old.Cert, p.Cert) // and again: told again
	check(false)
	_, err = k.Check(now)
	require.Error(t, err)
}

// Somebody who says that the files are whole need not wait for a second look, and is
// told what is wrong each time.
func TestReload(t *testing.T) {
	a := tlstest.New(t)
	p := a.Issue(t, "server", nil)
	k, err := NewServer(Server{CertFile: p.Cert, KeyFile: p.Key})
	require.NoError(t, err)
	now := time.Now()
	reload := func(wantChanged bool) {
		t.Helper()
		changed, err := k.Reload(now)
		require.NoError(t, err)
		require.Equal(t, wantChanged, changed)
	}
	reload(false)
	first := k.Config()
	a.IssueTo(t, p, "server", nil)
	reload(true)
	require.NotSame(t, first, k.Config())
	reload(false)

	second := k.Config()
	whole, err := os.ReadFile(p.Cert)
	require.NoError(t, err)
	require.NoError(t, os.Remove(p.Cert))
	for range 2 {
		_, err := k.Reload(now)
		require.ErrorContains(t, err, "does not exist")
		changed, err := k.Check(now)
		require.NoError(t, err, "which was told")
		require.False(t, changed)
	}
	require.Same(t, second, k.Config())
	require.NoError(t, os.WriteFile(p.Cert, whole, 0o600))
	reload(false)
	a.IssueTo(t, p, "server", nil)
	changed, err := k.Check(now)
	require.NoError(t, err)
	require.False(t, changed, "half of it may be missing")
	reload(true)
}

// A certificate that has expired is replaced by one that has expired, too: nobody is
// worse off, and whoever does not look goes on.
func TestExpiredByExpired(t *testing.T) {
	a := tlstest.New(t)
	late := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	p := a.Issue(t, "server", late)
	k, err := NewServer(Server{CertFile: p.Cert, KeyFile: p.Key})
	require.NoError(t, err)
	require.ErrorIs(t, k.Valid(time.Now()), ErrNotValid)
	a.IssueTo(t, p, "server", late)
	for _, want := range []bool{false, true} {
		changed, err := k.Check(time.Now())
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
}

func TestClientAuthorities(t *testing.T) {
	a := tlstest.New(t)
	k, err := NewClient(Client{VerifyServer: true, CAFile: a.CAFile})
	require.NoError(t, err)
	require.True(t, a.Pool().Equal(k.Config().RootCAs))
	require.False(t, k.Config().InsecureSkipVerify)
	require.True(t, k.NotAfter().IsZero())
	_, err = NewClient(Client{VerifyServer: true, CAFile: filepath.Join("testdata", "plain.pem")})
	require.ErrorContains(t, err, "holds no certificate")
	s, err := NewServer(Server{ClientAuth: tls.RequestClientCert, VerifyClients: true, ClientCAFile: a.CAFile})
	require.NoError(t, err)
	require.Equal(t, tls.VerifyClientCertIfGiven, s.Config().ClientAuth)
}

// FuzzDecryptPKCS8: no file makes it panic or compute for ever.
func FuzzDecryptPKCS8(f *testing.F) {
	for _, file := range []string{"aes-128-cbc.pem", "sha1.pem", "sha512.pem", "des3.pem", "scrypt.pem", "pbes1.pem"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(f, err)
		b, _ := pem.Decode(text)
		f.Add(b.Bytes)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		if out, err := decryptPKCS8(der, "secret"); err == nil {
			require.NotEmpty(t, out)
		}
	})
}
