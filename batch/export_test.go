package batch

// The two ways of SetProducerID, for the tests and benchmarks that compare them.
func PatchProducerID(b Batch, id int64)     { b.setProducerIDPatch(id) }
func RecomputeProducerID(b Batch, id int64) { b.setProducerIDRecompute(id) }
