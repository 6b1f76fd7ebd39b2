"""A certificate for one process, made without any other package.

Host and plugin know each other by certificates that live as long as the process:
the host's comes in the environment, the plugin's goes back with the handshake.
Python's standard library reads certificates and makes none, hence these few lines
of DER and of the curve P-256.
"""

import base64
import hashlib
import secrets
import time

# P-256 (FIPS 186-4, D.1.2.3).
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

_EC_PUBLIC_KEY = "1.2.840.10045.2.1"
_CURVE = "1.2.840.10045.3.1.7"
_ECDSA_SHA256 = "1.2.840.10045.4.3.2"
_COMMON_NAME = "2.5.4.3"
_KEY_USAGE = "2.5.29.15"
_ALT_NAME = "2.5.29.17"
_BASIC = "2.5.29.19"
_EXTENDED = "2.5.29.37"
_SERVER_AUTH = "1.3.6.1.5.5.7.3.1"

_YEARS = 30


def make():
    """Returns a new key and its certificate for "localhost": both in PEM, and the
    certificate as the handshake carries it."""
    secret, public = _key()
    der = _certificate(secret, public)
    return _pem("PRIVATE KEY", _private(secret, public)), _pem("CERTIFICATE", der), base64.b64encode(der).decode().rstrip("=")


def _add(a, b):
    if a is None:
        return b
    if b is None:
        return a
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P) % _P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P) % _P
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _multiply(k):
    out, power = None, _G
    while k:
        if k & 1:
            out = _add(out, power)
        power = _add(power, power)
        k >>= 1
    return out


def _key():
    secret = secrets.randbelow(_N - 1) + 1
    x, y = _multiply(secret)
    return secret, b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def _sign(secret, message):
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        k = secrets.randbelow(_N - 1) + 1
        r = _multiply(k)[0] % _N
        s = pow(k, -1, _N) * (digest + r * secret) % _N
        if r and s:
            return _sequence(_integer(r), _integer(s))


def _certificate(secret, public):
    algorithm = _sequence(_oid(_ECDSA_SHA256))
    name = _sequence(_set(_sequence(_oid(_COMMON_NAME), _tlv(0x0C, b"localhost"))))
    now = time.gmtime(time.time() - 30)
    validity = _sequence(_time(now), _time((now.tm_year + _YEARS, now.tm_mon, min(now.tm_mday, 28)) + tuple(now[3:])))
    extensions = _sequence(
        _extension(_BASIC, _sequence(_tlv(0x01, b"\xff"))),
        _extension(_KEY_USAGE, _tlv(0x03, b"\x02\x84")),  # digital signature, certificates
        _extension(_EXTENDED, _sequence(_oid(_SERVER_AUTH))),
        _extension(_ALT_NAME, _sequence(_tlv(0x82, b"localhost"))),
    )
    body = _sequence(
        _tlv(0xA0, _integer(2)),
        _integer(secrets.randbits(127) | 1),
        algorithm,
        name,
        validity,
        name,
        _sequence(_sequence(_oid(_EC_PUBLIC_KEY), _oid(_CURVE)), _bits(public)),
        _tlv(0xA3, extensions),
    )
    return _sequence(body, algorithm, _bits(_sign(secret, body)))


def _private(secret, public):
    key = _sequence(_integer(1), _tlv(0x04, secret.to_bytes(32, "big")), _tlv(0xA1, _bits(public)))
    return _sequence(_integer(0), _sequence(_oid(_EC_PUBLIC_KEY), _oid(_CURVE)), _tlv(0x04, key))


def _tlv(tag, value):
    if len(value) < 0x80:
        return bytes((tag, len(value))) + value
    size = len(value).to_bytes((len(value).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + value


def _sequence(*parts):
    return _tlv(0x30, b"".join(parts))


def _set(*parts):
    return _tlv(0x31, b"".join(parts))


def _integer(value):
    return _tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(value):
    return _tlv(0x03, b"\x00" + value)


def _time(t):
    if t[0] < 2050:
        return _tlv(0x17, b"%02d%02d%02d%02d%02d%02dZ" % (t[0] % 100, *t[1:6]))
    return _tlv(0x18, b"%04d%02d%02d%02d%02d%02dZ" % tuple(t[:6]))


def _oid(text):
    numbers = [int(n) for n in text.split(".")]
    out = bytearray([numbers[0] * 40 + numbers[1]])
    for n in numbers[2:]:
        part = [n & 0x7F]
        while n > 0x7F:
            n >>= 7
            part.append(n & 0x7F | 0x80)
        out += bytes(reversed(part))
    return _tlv(0x06, bytes(out))


def _extension(oid, value):
    critical = _tlv(0x01, b"\xff") if oid in (_BASIC, _KEY_USAGE) else b""
    return _sequence(_oid(oid), critical, _tlv(0x04, value))


def _pem(kind, der):
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = [text[i : i + 64] for i in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]).encode()
