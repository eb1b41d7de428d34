package controller

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is what controllers tell of themselves to anybody.
type Cluster struct {
	ID       string
	Features []Feature
}

// Feature is a feature that the controllers support.
type Feature struct {
	Name     string
	Min, Max int16
	// Finalized is the level in force, 0 if it is off.
	Finalized int16
}

// Feature returns the feature of this name.
func (c Cluster) Feature(name string) (Feature, bool) {
	for _, f := range c.Features {
		if f.Name == name {
			return f, true
		}
	}
	return Feature{}, false
}

// endpointControllers asks DescribeCluster for controllers: on their listener it
// refuses the question for brokers.
const endpointControllers = 2

// Describe asks for the id and the features of the cluster. It changes nothing.
func (c *Client) Describe(ctx context.Context) (Cluster, error) {
	dc := kmsg.NewPtrDescribeClusterRequest()
	dc.EndpointType = endpointControllers
	resp, err := c.Request(ctx, dc)
	if err != nil {
		return Cluster{}, err
	}
	d, ok := resp.(*kmsg.DescribeClusterResponse)
	if !ok {
		return Cluster{}, fmt.Errorf("describe cluster was answered with %T", resp)
	}
	if err := kerr.ErrorForCode(d.ErrorCode); err != nil {
		return Cluster{}, fmt.Errorf("describe cluster: %w", err)
	}
	av := kmsg.NewPtrApiVersionsRequest()
	av.ClientSoftwareName, av.ClientSoftwareVersion = "mirror-sidecar", "1"
	resp, err = c.Request(ctx, av)
	if err != nil {
		return Cluster{}, err
	}
	a, ok := resp.(*kmsg.ApiVersionsResponse)
	if !ok {
		return Cluster{}, fmt.Errorf("api versions was answered with %T", resp)
	}
	if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
		return Cluster{}, fmt.Errorf("api versions: %w", err)
	}
	finalized := make(map[string]int16)
	for _, f := range a.FinalizedFeatures {
		finalized[f.Name] = f.MaxVersionLevel
	}
	out := Cluster{ID: d.ClusterID}
	for _, f := range a.SupportedFeatures {
		out.Features = append(out.Features, Feature{Name: f.Name, Min: f.MinVersion, Max: f.MaxVersion, Finalized: finalized[f.Name]})
	}
	return out, nil
}
