package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// deleted is what Kafka's log dump prints for a null value.
const deleted = "<DELETE>"

// DumpRecord renders a record of the state topic as kafka-dump-log.sh does with
// --mirror-state-decoder: type and version are JSON strings. A record of a newer build or
// a damaged one is an error; the caller prints it and goes on.
func DumpRecord(key, value []byte) (keyText, payload string, err error) {
	k, v, version, err := decodeRecord(key, value)
	if err != nil {
		return "", "", err
	}
	type text struct {
		Type string `json:"type"`
		Data Key    `json:"data"`
	}
	type payloadText struct {
		Version string `json:"version"`
		Data    Value  `json:"data"`
	}
	kb, err := renderJSON(text{strconv.Itoa(int(k.RecordType())), k})
	if err != nil {
		return "", "", err
	}
	if v == nil {
		return kb, deleted, nil
	}
	vb, err := renderJSON(payloadText{strconv.Itoa(int(version)), v})
	if err != nil {
		return "", "", err
	}
	return kb, vb, nil
}

// FormatRecord renders a record of the state topic as KIP-1279's console formatter does:
// one JSON object, type and version as numbers, a null value as null.
func FormatRecord(key, value []byte) (string, error) {
	k, v, version, err := decodeRecord(key, value)
	if err != nil {
		return "", err
	}
	type keyNumber struct {
		Type int16 `json:"type"`
		Data Key   `json:"data"`
	}
	type valueNumber struct {
		Version int16 `json:"version"`
		Data    Value `json:"data"`
	}
	line := struct {
		Key   keyNumber    `json:"key"`
		Value *valueNumber `json:"value"`
	}{Key: keyNumber{k.RecordType(), k}}
	if v != nil {
		line.Value = &valueNumber{version, v}
	}
	return renderJSON(line)
}

// renderJSON does not escape <, > and &, which Kafka's tools do not either.
func renderJSON(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", fmt.Errorf("render state record: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func decodeRecord(key, value []byte) (Key, Value, int16, error) {
	k, err := DecodeKey(key)
	if err != nil {
		return nil, nil, 0, err
	}
	v, err := DecodeValue(k, value)
	if err != nil || v == nil {
		return k, nil, 0, err
	}
	return k, v, v.MaxVersion(), nil
}
