package tlsfiles

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// pair makes the certificate of the two files' texts; the names are for errors.
func pair(certFile string, cert []byte, keyFile string, key []byte, password string) (tls.Certificate, error) {
	chain, err := certificates(certFile, cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := privateKey(keyFile, key, password)
	if err != nil {
		return tls.Certificate{}, err
	}
	public, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(chain[0].PublicKey) {
		return tls.Certificate{}, fmt.Errorf("the key in %s does not belong to the certificate in %s (of %q): the two files must be from one pair, with the own certificate before those of authorities", keyFile, certFile, chain[0].Subject)
	}
	out := tls.Certificate{PrivateKey: private, Leaf: chain[0]}
	for _, c := range chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}

// certificates reads those of a PEM file: at least one.
func certificates(file string, text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d in %s cannot be read: %w", len(out)+1, file, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		hint := ""
		if bytes.HasPrefix(text, []byte{0x30}) {
			hint = "; it looks like DER, which `openssl x509 -inform der -in FILE -out FILE.pem` converts"
		}
		return nil, fmt.Errorf("%s holds no certificate in PEM (-----BEGIN CERTIFICATE-----)%s", file, hint)
	}
	return out, nil
}

// errEncrypted is about keys whose encryption this package does not know.
var errEncrypted = errors.New("its encryption is not supported")

// howToConvert is for keys that are not supported as they are.
func howToConvert(file string) string {
	return fmt.Sprintf("convert it with `openssl pkcs8 -in %s -topk8 -v2 aes-256-cbc -out NEW.pem`, which keeps a password, or with -nocrypt in place of -v2 aes-256-cbc, which keeps none", file)
}

// privateKey reads the first key of a PEM file.
func privateKey(file string, text []byte, password string) (crypto.Signer, error) {
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return nil, fmt.Errorf("%s holds no private key in PEM (-----BEGIN PRIVATE KEY-----)", file)
		}
		if !strings.HasSuffix(b.Type, "PRIVATE KEY") {
			continue
		}
		der := b.Bytes
		switch {
		case b.Headers["DEK-Info"] != "":
			return nil, fmt.Errorf("the key in %s: %w (the old one of OpenSSL, %s); %s", file, errEncrypted, b.Headers["DEK-Info"], howToConvert(file))
		case b.Type == "ENCRYPTED PRIVATE KEY" && password == "":
			return nil, fmt.Errorf("the key in %s is encrypted and no password is given (tls.server.keyPassword or tls.client.keyPassword)", file)
		case b.Type == "ENCRYPTED PRIVATE KEY":
			var err error
			if der, err = decryptPKCS8(der, password); errors.Is(err, errEncrypted) {
				return nil, fmt.Errorf("the key in %s: %w; %s", file, err, howToConvert(file))
			} else if err != nil {
				return nil, fmt.Errorf("the key in %s: %w", file, err)
			}
		}
		key, err := parseKey(der)
		if err != nil {
			return nil, fmt.Errorf("the key in %s cannot be read: %w", file, err)
		}
		return key, nil
	}
}

// parseKey reads PKCS #8 and the older forms of RSA and ECDSA keys.
func parseKey(der []byte) (crypto.Signer, error) {
	any, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		if k, err := x509.ParsePKCS1PrivateKey(der); err == nil {
			return k, nil
		}
		if k, err := x509.ParseECPrivateKey(der); err == nil {
			return k, nil
		}
		return nil, err
	}
	k, ok := any.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of the type %T does not sign", any)
	}
	return k, nil
}
