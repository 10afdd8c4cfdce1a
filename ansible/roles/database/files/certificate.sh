#!/bin/sh
# A certificate of the cluster's own small authority, made once and kept: certificate.sh DIRECTORY NAME [DNS name ...]
# Without NAME: the authority itself. Prints "made" when something was made. Keys are EC P-256, mode 0600.
set -eu
umask 077
directory=$1 name=${2:-}
shift $(($# < 2 ? $# : 2))
mkdir -p "$directory"
cd "$directory"
# Ten years. A new one is put before the old one three years from its end: what the old one signed holds until its own
# end, whatever is signed from then on is the new one's, and hosts believe both. Each has a name of its own, by which it is found.
if [ ! -s ca.crt ] || ! openssl x509 -in ca.crt -noout -checkend 94608000 >/dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj "/CN=Probing Cluster authority $(date -u +%Y-%m-%d)" \
        -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign \
        -keyout ca.key.new -out ca.crt.new 2>/dev/null
    if [ -s ca.crt ]; then
        openssl x509 -in ca.crt >>ca.crt.new
    fi
    mv ca.key.new ca.key
    mv ca.crt.new ca.crt
    chmod 644 ca.crt
    echo made
fi
# Renewed in the last 60 of its 730 days.
if [ -z "$name" ] || { [ -s "$name.crt" ] && openssl x509 -in "$name.crt" -noout -checkend 5184000 >/dev/null; }; then
    exit 0
fi
trap 'rm -f "$name.csr" "$name.ext" "$name.key.new" "$name.crt.new"' EXIT
{
    echo "basicConstraints=critical,CA:FALSE"
    echo "keyUsage=critical,digitalSignature"
    echo "extendedKeyUsage=serverAuth,clientAuth"
    names=
    for dns in "$@"; do names="${names:+$names,}DNS:$dns"; done
    [ -z "$names" ] || echo "subjectAltName=$names"
} >"$name.ext"
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
    -keyout "$name.key.new" -out "$name.csr" 2>/dev/null
openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days 730 \
    -extfile "$name.ext" -out "$name.crt.new" 2>/dev/null
mv "$name.key.new" "$name.key"
mv "$name.crt.new" "$name.crt"
echo made
