package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Object renders a message as Kafka's tools do: fields in the order of the layout,
// ids as text.
type Object struct {
	b   bytes.Buffer
	err error
}

// Field adds one field. v is a scalar, an ids.UUID, a slice of either, or a slice of
// generated messages. A nil slice is null.
func (o *Object) Field(name string, v any) {
	if o.err != nil {
		return
	}
	switch u := v.(type) {
	case ids.UUID:
		v = u.String()
	case []ids.UUID:
		if u != nil {
			text := make([]string, len(u))
			for i := range u {
				text[i] = u[i].String()
			}
			v = text
		}
	}
	var e bytes.Buffer
	enc := json.NewEncoder(&e)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		o.err = fmt.Errorf("field %s: %w", name, err)
		return
	}
	if o.b.Len() > 0 {
		o.b.WriteByte(',')
	}
	fmt.Fprintf(&o.b, "%q:", name)
	o.b.Write(bytes.TrimSuffix(e.Bytes(), []byte("\n")))
}

// JSON is the whole object.
func (o *Object) JSON() ([]byte, error) {
	if o.err != nil {
		return nil, o.err
	}
	return append(append([]byte{'{'}, o.b.Bytes()...), '}'), nil
}

// List turns a nil slice into an empty one, for fields that have no null.
func List[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
