package controller

import "github.com/twmb/franz-go/pkg/kmsg"

// refusals returns the error codes that say whether the sender of an answer acted as
// the active controller, in the places where Kafka puts them: at the top for most
// APIs, at every single item for others. Only if all are refusals was the request
// refused as a whole; the caller looks at the first and stops at one that is not.
//
// AlterPartition's partition errors are left out on purpose: there 41 also means that
// an epoch of the request was ahead of the controller's.
func refusals(resp kmsg.Response) []int16 {
	switch r := resp.(type) {
	case *kmsg.BrokerRegistrationResponse:
		return []int16{r.ErrorCode}
	case *kmsg.BrokerHeartbeatResponse:
		return []int16{r.ErrorCode}
	case *kmsg.UnregisterBrokerResponse:
		return []int16{r.ErrorCode}
	case *kmsg.AlterPartitionResponse:
		return []int16{r.ErrorCode}
	case *kmsg.AlterPartitionAssignmentsResponse:
		return []int16{r.ErrorCode}
	case *kmsg.ListPartitionReassignmentsResponse:
		return []int16{r.ErrorCode}
	case *kmsg.UpdateFeaturesResponse:
		return []int16{r.ErrorCode}
	case *kmsg.AllocateProducerIDsResponse:
		return []int16{r.ErrorCode}
	case *kmsg.AssignReplicasToDirsResponse:
		return []int16{r.ErrorCode}
	case *kmsg.ElectLeadersResponse:
		if r.ErrorCode != 0 {
			return []int16{r.ErrorCode}
		}
		var out []int16
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				out = append(out, p.ErrorCode)
			}
		}
		return out
	case *kmsg.FetchResponse:
		if r.ErrorCode != 0 {
			return []int16{r.ErrorCode}
		}
		var out []int16
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				out = append(out, p.ErrorCode)
			}
		}
		return out
	case *kmsg.FetchSnapshotResponse:
		if r.ErrorCode != 0 {
			return []int16{r.ErrorCode}
		}
		var out []int16
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				out = append(out, p.ErrorCode)
			}
		}
		return out
	case *kmsg.DescribeQuorumResponse:
		if r.ErrorCode != 0 {
			return []int16{r.ErrorCode}
		}
		var out []int16
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				out = append(out, p.ErrorCode)
			}
		}
		return out
	case *kmsg.CreateTopicsResponse:
		return codes(r.Topics, func(t kmsg.CreateTopicsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.DeleteTopicsResponse:
		return codes(r.Topics, func(t kmsg.DeleteTopicsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.CreatePartitionsResponse:
		return codes(r.Topics, func(t kmsg.CreatePartitionsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.IncrementalAlterConfigsResponse:
		return codes(r.Resources, func(t kmsg.IncrementalAlterConfigsResponseResource) int16 { return t.ErrorCode })
	case *kmsg.AlterConfigsResponse:
		return codes(r.Resources, func(t kmsg.AlterConfigsResponseResource) int16 { return t.ErrorCode })
	default:
		// ApiVersions, DescribeCluster and the like: any controller answers.
		return nil
	}
}

func codes[T any](items []T, code func(T) int16) []int16 {
	out := make([]int16, 0, len(items))
	for _, it := range items {
		out = append(out, code(it))
	}
	return out
}

// provesActive tells whether an answer without a refusal shows that its sender is the
// active controller: APIs that any controller answers show nothing. A fetch shows it
// only without an error: a wrong epoch is told by any voter.
func provesActive(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.FetchResponse, *kmsg.FetchSnapshotResponse:
		c := refusals(resp)
		return len(c) > 0 && c[0] == 0
	case *kmsg.BrokerHeartbeatResponse:
		return r.ErrorCode == 0
	default:
		return len(refusals(resp)) > 0
	}
}
