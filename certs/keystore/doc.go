// Package keystore reads key stores and trust stores as users of Kafka have them: JKS and
// PKCS12 as keytool of any JDK and openssl write them, old encryption and new, and PEM,
// whose key may be encrypted.
//
// It reads only, and what it reads is bounded: a broken or hostile file ends in an error, not in
// a process without memory. That, and stores of several keys, is why none of the libraries
// for these formats is used.
package keystore
