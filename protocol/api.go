package protocol

import (
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// API is one of our APIs, as ApiVersions lists it. All start at version 0.
type API struct {
	Key        int16
	Name       string
	MaxVersion int16
}

// APIs returns all of our APIs, ascending by key: those of KIP-1279, which are their
// prototype's numbers plus 12700, and our own from 12850 on.
func APIs() []API { return apis() }

// IsMirrorAPI tells whether a key is one of ours.
func IsMirrorAPI(key int16) bool { return newRequest(key) != nil }

// RequestForKey returns an empty request of a key with its defaults, or nil for a key that
// is not ours. kmsg.RequestForKey does not know our keys.
func RequestForKey(key int16) kmsg.Request { return newRequest(key) }

// Name is the name of an API, ours or Kafka's.
func Name(key int16) string {
	for _, a := range APIs() {
		if a.Key == key {
			return a.Name
		}
	}
	return kmsg.NameForKey(key)
}

// AllowMirrorAPIs adds our APIs to the versions that a kgo client may use, and returns
// them. kgo refuses to send a key that is not in its versions (kgo.MaxVersions), and by
// default those are Kafka's own, so every client that sends our requests is made with
//
//	kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable()))
//
// kgo also refuses a key that the peer's ApiVersions does not list; every sidecar's proxy
// lists them.
func AllowMirrorAPIs(v *kversion.Versions) *kversion.Versions {
	for _, a := range APIs() {
		v.SetMaxKeyVersion(a.Key, a.MaxVersion)
	}
	return v
}

// ListAPIs adds our APIs to an ApiVersions response.
func ListAPIs(resp *kmsg.ApiVersionsResponse) {
	for _, a := range APIs() {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = a.Key, a.MaxVersion
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
}
