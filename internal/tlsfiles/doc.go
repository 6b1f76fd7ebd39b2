// Package tlsfiles makes TLS configurations from files, and keeps them up to date:
// files that are replaced count for the connections that begin afterwards. It knows
// RocketMQ's rules about certificates (its test mode, need.client.auth, authServer)
// and nothing of who uses them: the transport, and the programs that connect.
//
// Everything is PEM. A key may be encrypted as PKCS #8 with PBES2, PBKDF2 and AES,
// which `openssl pkcs8 -topk8 -v2 aes-256-cbc` writes; other encryptions are refused
// with the command that converts the key.
package tlsfiles
