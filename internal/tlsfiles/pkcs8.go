package tlsfiles

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1" // what RFC 8018 has as the default of PBKDF2's pseudo-random function
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"hash"
)

// Object identifiers of RFC 8018, appendix A and B, and of NIST for AES.
var (
	oidPBES2      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	oidHMACSHA1   = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 7}
	oidHMACSHA256 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 9}
	oidHMACSHA384 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 10}
	oidHMACSHA512 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 11}
	oidAES128CBC  = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 2}
	oidAES192CBC  = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 22}
	oidAES256CBC  = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}
)

// encryptedKey is EncryptedPrivateKeyInfo of RFC 5958.
type encryptedKey struct {
	Algorithm pkix.AlgorithmIdentifier
	Data      []byte
}

// pbes2 is PBES2-params, kdf PBKDF2-params of RFC 8018.
type pbes2 struct {
	KDF, Cipher pkix.AlgorithmIdentifier
}

type kdf struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

// mostIterations bounds what a file can make this program compute: OpenSSL writes
// 2,048, careful people a million.
const mostIterations = 10_000_000

var errPassword = errors.New("the password is wrong, or the key is damaged")

// decryptPKCS8 returns the PrivateKeyInfo. Errors: errEncrypted, errPassword.
func decryptPKCS8(der []byte, password string) ([]byte, error) {
	var outer encryptedKey
	if rest, err := asn1.Unmarshal(der, &outer); err != nil || len(rest) > 0 {
		return nil, errors.New("what is encrypted has not the form of PKCS #8")
	}
	if !outer.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, fmt.Errorf("%w (object identifier %v)", errEncrypted, outer.Algorithm.Algorithm)
	}
	var p pbes2
	var k kdf
	if err := unmarshalAll(outer.Algorithm.Parameters.FullBytes, &p); err != nil {
		return nil, err
	}
	if !p.KDF.Algorithm.Equal(oidPBKDF2) {
		return nil, fmt.Errorf("%w (key derivation %v)", errEncrypted, p.KDF.Algorithm)
	}
	if err := unmarshalAll(p.KDF.Parameters.FullBytes, &k); err != nil {
		return nil, err
	}
	newHash := prfOf(k.PRF.Algorithm)
	length := keyLengthOf(p.Cipher.Algorithm)
	switch {
	case newHash == nil:
		return nil, fmt.Errorf("%w (pseudo-random function %v)", errEncrypted, k.PRF.Algorithm)
	case length == 0:
		return nil, fmt.Errorf("%w (cipher %v)", errEncrypted, p.Cipher.Algorithm)
	case k.Iterations < 1 || k.Iterations > mostIterations:
		return nil, fmt.Errorf("%w (%d iterations)", errEncrypted, k.Iterations)
	}
	var iv []byte
	if err := unmarshalAll(p.Cipher.Parameters.FullBytes, &iv); err != nil {
		return nil, err
	}
	if len(iv) != aes.BlockSize || len(outer.Data) == 0 || len(outer.Data)%aes.BlockSize != 0 {
		return nil, errPassword
	}
	key, err := pbkdf2.Key(newHash, password, k.Salt, k.Iterations, length)
	if err != nil {
		return nil, fmt.Errorf("deriving the key from the password: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(outer.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(out, outer.Data)
	return unpadded(out)
}

// unpadded removes the padding of PKCS #7, and sees by it whether the password was
// right; that the rest is a key shows when it is read.
func unpadded(b []byte) ([]byte, error) {
	n := int(b[len(b)-1])
	if n < 1 || n > aes.BlockSize || n > len(b) {
		return nil, errPassword
	}
	for _, c := range b[len(b)-n:] {
		if int(c) != n {
			return nil, errPassword
		}
	}
	b = b[:len(b)-n]
	var any asn1.RawValue
	if rest, err := asn1.Unmarshal(b, &any); err != nil || len(rest) > 0 {
		return nil, errPassword
	}
	return b, nil
}

func unmarshalAll(der []byte, out any) error {
	if rest, err := asn1.Unmarshal(der, out); err != nil || len(rest) > 0 {
		return errors.New("the parameters of its encryption have not the form of PKCS #5")
	}
	return nil
}

func prfOf(id asn1.ObjectIdentifier) func() hash.Hash {
	switch {
	case len(id) == 0, id.Equal(oidHMACSHA1):
		return sha1.New
	case id.Equal(oidHMACSHA256):
		return sha256.New
	case id.Equal(oidHMACSHA384):
		return sha512.New384
	case id.Equal(oidHMACSHA512):
		return sha512.New
	}
	return nil
}

func keyLengthOf(id asn1.ObjectIdentifier) int {
	switch {
	case id.Equal(oidAES128CBC):
		return 16
	case id.Equal(oidAES192CBC):
		return 24
	case id.Equal(oidAES256CBC):
		return 32
	}
	return 0
}
