package proxy

import (
	"context"
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersions asks the home broker and clamps its answer to the table.
func (c *conn) apiVersions(r *request) (exchange, error) {
	ex := relayed(r.header)
	if r.version > c.p.rows[keyAPIVersions].max {
		// KIP-511: a client newer than this proxy gets the answer of version 0, with the
		// error and the ranges, and asks again. The body of its request is not read.
		var resp *kmsg.ApiVersionsResponse
		ex.converse = func(ctx context.Context, up *conversation) error {
			req := kmsg.NewPtrApiVersionsRequest()
			got, err := up.request(ctx, req)
			if err != nil {
				return err
			}
			resp = got.(*kmsg.ApiVersionsResponse)
			c.p.clamp(resp)
			resp.ErrorCode = errUnsupportedVersion
			return nil
		}
		ex.answer = func(context.Context) (net.Buffers, error) {
			return net.Buffers{appendResponse(nil, resp, r.correlation)}, nil
		}
		return ex, nil
	}
	ex.send = r.raw
	if r.version >= 5 {
		// KIP-1242: the broker would find that it is not the node or cluster that was
		// asked for, which is right and of no use.
		req, err := decode(r, kmsg.NewPtrApiVersionsRequest())
		if err != nil {
			return exchange{}, err
		}
		req.NodeID, req.ClusterID = -1, nil
		ex.send = encodeRequest(req, r.correlation, r.clientID)
	}
	ex.transform = func(body []byte) (kmsg.Response, error) {
		version := r.version
		if len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == errUnsupportedVersion {
			version = 0 // an older broker's KIP-511 answer
		}
		got, err := decodeResponse(keyAPIVersions, version, body)
		if err != nil {
			return nil, err
		}
		c.p.clamp(got.(*kmsg.ApiVersionsResponse))
		return got, nil
	}
	return ex, nil
}

// clamp takes away what the proxy cannot read of the APIs in its table, and adds the
// mirror APIs.
func (p *Proxy) clamp(resp *kmsg.ApiVersionsResponse) {
	if resp.ErrorCode != errNone && len(resp.ApiKeys) == 0 {
		return
	}
	kept := resp.ApiKeys[:0]
	for _, k := range resp.ApiKeys {
		if r := p.rows[k.ApiKey]; r != nil {
			k.MaxVersion = min(k.MaxVersion, r.max)
		}
		if k.MinVersion <= k.MaxVersion {
			kept = append(kept, k)
		}
	}
	resp.ApiKeys = kept
	if p.deps.Mirror == nil {
		return
	}
	for _, key := range p.deps.Mirror.Keys() {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey = key
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
}
