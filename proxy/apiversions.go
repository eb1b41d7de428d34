package proxy

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersions lets the home broker answer, and clamps its answer to the table. The broker also
// answers a version that nobody knows (KIP-511): in version 0, with the error and its range.
func (c *conn) apiVersions(r *request) (exchange, error) {
	ex := relayed(r.header)
	ex.send = r.raw
	known := r.version >= 0 && r.version <= c.p.rows[keyAPIVersions].max
	if known && r.version >= 5 && c.p.cfg.Virtual {
		// KIP-1242: a client that looks for the virtual broker has found it, but who answers is a
		// real one. At a client listener the broker is who clients believe it to be, and tells
		// those who meant another one.
		req, err := decode(r, kmsg.NewPtrApiVersionsRequest())
		if err != nil {
			return exchange{}, err
		}
		cluster := c.p.cfg.ClusterID
		if req.NodeID == c.p.cfg.IDs.Of(c.p.cfg.Home) && (req.ClusterID == nil || cluster == "" || *req.ClusterID == cluster) {
			// Which real broker answers is not known, the home broker may be down; and who names
			// a cluster has to name a node. In another cluster the id is left to be refused.
			req.NodeID, req.ClusterID = -1, nil
			ex.send = encodeRequest(req, r.correlation, r.clientID)
		}
	}
	ex.transform = func(body []byte) (kmsg.Response, error) {
		refused := len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == errUnsupportedVersion
		if !known && !refused {
			// The broker is newer than this proxy, and its answer cannot be read here.
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.ErrorCode = errUnsupportedVersion
			own := kmsg.NewApiVersionsResponseApiKey()
			own.ApiKey, own.MaxVersion = keyAPIVersions, c.p.rows[keyAPIVersions].max
			resp.ApiKeys = append(resp.ApiKeys, own)
			return resp, nil
		}
		version := r.version
		if refused {
			version = 0
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
	if p.deps.Mirror == nil || resp.ErrorCode != errNone {
		return // what comes with an error are the versions to ask again in
	}
	for _, key := range p.deps.Mirror.Keys() {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey = key
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
}
