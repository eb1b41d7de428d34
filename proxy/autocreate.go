package proxy

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lightMetadata streams a Metadata request that cannot make a broker create the state topic.
func (c *conn) lightMetadata(h header, size int) (exchange, bool, error) {
	if _, exists := c.p.stateTopicID(); !exists {
		if ok, err := c.lightRead(size, false); err != nil || !ok {
			return exchange{}, false, err
		}
	}
	return lightRewrite(c, h, size)
}

// metadata asks for all but the state topic, while there is none: brokers create what they are
// asked for (auto.create.topics.enable), and the sidecars alone create this one.
func (c *conn) metadata(r *request) (exchange, error) {
	ex := r.forward()
	ex.transform = c.p.rewriter(r.key, r.version)
	req, err := decode(r, kmsg.NewPtrMetadataRequest())
	if err != nil {
		return exchange{}, err
	}
	if _, exists := c.p.stateTopicID(); exists {
		return ex, nil
	}
	rules := c.p.readRules()
	s := rules.Metadata(req)
	if s == nil {
		return ex, nil
	}
	ex.send = encodeRequest(s.Rest, r.correlation, r.clientID)
	ex.version = s.Rest.Version // of the response
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, s.Rest.Version, body)
		if err != nil {
			return nil, err
		}
		merged := s.Merge(resp.(*kmsg.MetadataResponse))
		if row := c.p.rows[r.key]; row.rewrite != nil {
			row.rewrite(c.p, merged)
		}
		return merged, nil
	}
	return ex, nil
}
