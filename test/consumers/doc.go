// Package consumers reads mirror topics while they are mirrored, through the sidecars' proxies, at
// real brokers: each version of each API that consumers use is compared, field by field, with what the
// leader of the source topic answers, which is an ordinary topic with the same content; and consumers
// of both group protocols go on, record by record, while leaders change and mirrors are stopped.
//
// Its default form is for CI; MIRROR_FULL=1 reads for longer, through more changes.
package consumers
