#!/usr/bin/env bash
# Writes tests/golden/tls: a certificate authority, and three server certificates: a valid one for the loopback address,
# one for another host name, and an expired one. They are only for tests, because their keys are public. Needs openssl
# 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p tls
cd tls

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }

key authority
openssl req -x509 -key authority.key -subj '/CN=feedwater tests' -days 36500 -out authority.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign

# Arguments: NAME, the subjectAltName, the first and the last day of validity. Uses openssl ca, because openssl x509
# sets dates only from 3.4 on.
certificate() {
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    rm -rf ca && mkdir ca && touch ca/index.txt
    cat > ca/config << EOF
[ca]
default_ca = own
[own]
database = ca/index.txt
new_certs_dir = ca
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
[server]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = $2
EOF
    openssl ca -batch -notext -config ca/config -extensions server -cert authority.pem -keyfile authority.key \
        -startdate "$3" -enddate "$4" -in "$1.csr" -out "$1.pem"
    rm -rf ca "$1.csr"
}

certificate good 'IP:127.0.0.1,DNS:localhost' 20260101000000Z 21260101000000Z
certificate other 'DNS:elsewhere.example' 20260101000000Z 21260101000000Z
certificate past 'IP:127.0.0.1,DNS:localhost' 20200101000000Z 20210101000000Z
rm authority.key
