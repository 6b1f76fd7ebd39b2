package external

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// certificateEnv tells a process the certificate of its host, in PEM, and that its
// own is wanted in the handshake: go-plugin's AutoMTLS.
const certificateEnv = "PLUGIN_CLIENT_CERT"

// certificateYears is longer than any process lives.
const certificateYears = 30

// newCertificate makes what a host shows to one process. go-plugin would make it on
// the curve P-521, which the TLS of other languages' gRPC (BoringSSL) does not
// take.
func newCertificate() (cfg *tls.Config, text string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("make a key for the connection to a plugin: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, "", fmt.Errorf("make a key for the connection to a plugin: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: now.Add(-30 * time.Second), NotAfter: now.AddDate(certificateYears, 0, 0),
		// Of connections that the process makes to its host, this one is the server.
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, "", fmt.Errorf("make a certificate for the connection to a plugin: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
		ServerName:   "localhost",
		// No system root vouches for a process that shows no certificate.
		RootCAs: x509.NewCertPool(), ClientCAs: x509.NewCertPool(),
	}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}
