package proxy

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// decode reads a request's body into req. Byte fields, and tagged fields that kmsg does
// not know, refer to the body.
func decode[T kmsg.Request](r *request, req T) (T, error) {
	req.SetVersion(r.version)
	if err := req.ReadFrom(r.body); err != nil {
		return req, fmt.Errorf("request body: %w", err)
	}
	return req, nil
}

// decodeResponse reads a response's body; it refers to it as decode's result does.
func decodeResponse(key, version int16, body []byte) (kmsg.Response, error) {
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("response body: %w", err)
	}
	return resp, nil
}
