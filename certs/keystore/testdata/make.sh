#!/bin/sh
# Writes the stores of the tests, in base64, with openssl 3 and the keytools of JDK 17 and 25:
#   make.sh <bin of JDK 17> <bin of JDK 25>
# Nothing trusts their authority, and their keys are for nothing else.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
jdk17=$1 jdk25=$2
cd "$(mktemp -d)"
pass=store-pass
days=36500

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days $days -subj /CN=authority 2>/dev/null
leaf() { # name, arguments of -newkey
	name=$1; shift
	openssl req -newkey "$@" -nodes -keyout "$name.key" -out "$name.csr" -subj "/CN=$name" 2>/dev/null
	openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days $days -out "$name.pem" 2>/dev/null
}
leaf one ec -pkeyopt ec_paramgen_curve:P-256
leaf two rsa:2048

p12() { # file, arguments
	out=$1; shift
	openssl pkcs12 -export -inkey one.key -in one.pem -certfile ca.pem -name one -passout "pass:$pass" -out "$out" "$@"
}
p12 openssl.p12
p12 openssl-legacy.p12 -legacy
p12 openssl-3des.p12 -keypbe PBE-SHA1-3DES -certpbe PBE-SHA1-3DES -macalg sha1
p12 openssl-aes128.p12 -keypbe AES-128-CBC -certpbe AES-192-CBC -macalg sha512
p12 openssl-nomac.p12 -nomac
openssl pkcs12 -export -nokeys -in ca.pem -passout "pass:$pass" -out openssl-trust.p12
openssl pkcs12 -export -inkey two.key -in two.pem -certfile ca.pem -name two -passout "pass:$pass" -out two.p12

jdk() { # bin, file, type, further arguments of the virtual machine
	bin=$1 out=$2 type=$3; shift 3
	for alias in one two; do
		from=openssl.p12; [ $alias = two ] && from=two.p12
		"$bin/keytool" "$@" -importkeystore -noprompt -srckeystore $from -srcstorepass $pass -srcalias $alias \
			-destkeystore "$out" -deststoretype "$type" -deststorepass $pass -destkeypass $pass 2>/dev/null
	done
	"$bin/keytool" "$@" -importcert -noprompt -alias trusted -file ca.pem -keystore "$out" -storepass $pass 2>/dev/null
}
for v in 17 25; do
	eval bin=\$jdk$v
	jdk "$bin" jdk$v.p12 PKCS12
	jdk "$bin" jdk$v.jks JKS
	jdk "$bin" jdk$v-legacy.p12 PKCS12 -J-Dkeystore.pkcs12.legacy
	cp jdk$v.jks jdk$v-keypass.jks
	"$bin/keytool" -keypasswd -alias one -keypass $pass -new key-pass -keystore jdk$v-keypass.jks -storepass $pass 2>/dev/null
	for type in PKCS12 JKS; do
		ext=p12; [ $type = JKS ] && ext=jks
		"$bin/keytool" -importcert -noprompt -alias trusted -file ca.pem -keystore jdk$v-trust.$ext -storetype $type -storepass $pass 2>/dev/null
	done
done

pem() { # name, arguments of pkcs8
	name=$1; shift
	{ openssl pkcs8 -topk8 -in one.key -passout "pass:$pass" "$@"; cat one.pem ca.pem; } >"$name.pem"
}
pem pkcs8-aes256 -v2 aes-256-cbc
pem pkcs8-aes128-sha512 -v2 aes-128-cbc -v2prf hmacWithSHA512
pem pkcs8-des3 -v2 des3
pem pkcs8-v1 -v1 PBE-SHA1-3DES
pem pkcs8-scrypt -scrypt
{ openssl ec -in one.key -aes256 -passout "pass:$pass" 2>/dev/null; cat one.pem; } >traditional.pem
{ cat one.key one.pem ca.pem; } >plain.pem

for f in openssl*.p12 jdk*.p12 jdk*.jks pkcs8-*.pem traditional.pem plain.pem; do
	base64 -w 160 "$f" >"$here/$f.b64"
done
