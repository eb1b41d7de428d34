package metadata

// Set replaces what the image says, as a snapshot that was read would. It is for the tests
// of those who read images; whoever follows a metadata log never calls it.
func (i *Image) Set(partitions []*Partition, brokers []Broker, topicConfigs map[string]map[string]string) {
	next := newState(i.virtual)
	for _, p := range partitions {
		t := next.topics[p.TopicID]
		if t == nil {
			t = &topic{name: p.Topic}
			next.topics[p.TopicID] = t
			next.names[p.Topic] = p.TopicID
		}
		t.partitions = append(t.partitions, p)
		next.partitions++
	}
	for _, b := range brokers {
		next.brokers[b.ID] = b
	}
	for name, c := range topicConfigs {
		next.topicConfigs[name] = cloneConfig(c)
	}
	i.mu.RLock()
	next.offset = i.st.offset + 1
	i.mu.RUnlock()
	i.replace(next)
}
