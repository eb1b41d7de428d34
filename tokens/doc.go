// Package tokens gets the bearer tokens that clients log in with by SASL/OAUTHBEARER: from an endpoint by
// the client credentials grant (RFC 6749, 4.4), from a file that somebody else keeps fresh, or made up without
// a signature, as Kafka's own tests do. A token is kept and replaced before it ends; nothing here verifies
// one, which is the broker's business, and no error repeats one.
package tokens
