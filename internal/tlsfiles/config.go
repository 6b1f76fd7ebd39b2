package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"time"
)

// Server is what a server shows and asks for. The names in brackets are RocketMQ's.
type Server struct {
	// CertFile holds the certificate and those of authorities between it and the
	// root (tls.server.certPath), KeyFile its key (tls.server.keyPath), which
	// KeyPassword decrypts (tls.server.keyPassword). Both empty: a certificate of its
	// own making, which proves nothing (tls.test.mode.enable).
	CertFile, KeyFile, KeyPassword string
	// ClientAuth is NoClientCert, RequestClientCert for optional or
	// RequireAnyClientCert for require (tls.server.need.client.auth).
	ClientAuth tls.ClientAuthType
	// VerifyClients says that a certificate which a client shows must be signed by one
	// in ClientCAFile; without that file by one that the system trusts
	// (tls.server.authClient, tls.server.trustCertPath).
	VerifyClients bool
	ClientCAFile  string
}

// Client is what a client shows and asks for.
type Client struct {
	// CertFile, KeyFile and KeyPassword are the client's certificate; empty: none
	// (tls.client.certPath, tls.client.keyPath, tls.client.keyPassword).
	CertFile, KeyFile, KeyPassword string
	// VerifyServer says that the server's certificate must be signed by one in
	// CAFile; without that file by one that the system trusts (tls.client.authServer,
	// tls.client.trustCertPath). Without it whoever answers is believed.
	VerifyServer bool
	CAFile       string
	// AnyName takes a certificate for any name, as RocketMQ's clients do.
	AnyName bool
}

// largestFile bounds what is read: bundles of authorities fit.
const largestFile = 4 << 20

func read(path string) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the file %s does not exist", path)
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular() || st.Size() > largestFile: // a pipe may never end
		return nil, fmt.Errorf("%s is no regular file or longer than %d bytes", path, largestFile)
	}
	return os.ReadFile(path)
}

// texts are the contents of the files of a configuration.
type texts map[string][]byte

func readAll(paths []string) (texts, error) {
	out := texts{}
	for _, p := range paths {
		b, err := read(p)
		if err != nil {
			return nil, err
		}
		out[p] = b
	}
	return out, nil
}

func named(paths ...string) []string {
	var out []string
	for _, p := range paths {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

func (s Server) files() []string { return named(s.CertFile, s.KeyFile, s.ClientCAFile) }

func (s Server) build(t texts) (*tls.Config, error) {
	cert, err := s.certificate(t)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, ClientAuth: s.ClientAuth}
	if !s.VerifyClients {
		return c, nil
	}
	switch s.ClientAuth {
	case tls.RequestClientCert:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case tls.RequireAnyClientCert:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if c.ClientCAs, err = pool(s.ClientCAFile, t); err != nil {
		return nil, err
	}
	return c, nil
}

func (s Server) certificate(t texts) (tls.Certificate, error) {
	if s.CertFile == "" && s.KeyFile == "" {
		return selfSigned()
	}
	return pair(s.CertFile, t[s.CertFile], s.KeyFile, t[s.KeyFile], s.KeyPassword)
}

func (c Client) files() []string { return named(c.CertFile, c.KeyFile, c.CAFile) }

func (c Client) build(t texts) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CertFile != "" || c.KeyFile != "" {
		cert, err := pair(c.CertFile, t[c.CertFile], c.KeyFile, t[c.KeyFile], c.KeyPassword)
		if err != nil {
			return nil, err
		}
		out.Certificates = []tls.Certificate{cert}
	}
	roots, err := pool(c.CAFile, t)
	if err != nil {
		return nil, err
	}
	switch {
	case !c.VerifyServer:
		out.InsecureSkipVerify = true // asked for: RocketMQ's clients verify nothing unless told to
	case c.AnyName:
		out.InsecureSkipVerify = true // all but the name is verified by what follows
		out.VerifyConnection = func(cs tls.ConnectionState) error { return verifyChain(cs, roots) }
	default:
		out.RootCAs = roots
	}
	return out, nil
}

// verifyChain is what crypto/tls does itself, but that the name does not count.
func verifyChain(cs tls.ConnectionState, roots *x509.CertPool) error {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, c := range cs.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(o)
	return err
}

// pool are the authorities of a file; nil, which means the system's, without one.
func pool(file string, t texts) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	all, err := certificates(file, t[file])
	if err != nil {
		return nil, err
	}
	p := x509.NewCertPool()
	for _, c := range all {
		p.AddCert(c)
	}
	return p, nil
}

// selfSignedYears is how long a certificate of own making is valid: longer than a
// process lives.
const selfSignedYears = 10

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost", Organization: []string{"Hardpoint test mode"}},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(selfSignedYears, 0, 0),
		DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
