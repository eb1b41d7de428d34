import java.io.InputStream;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** A tier that holds nothing: with it a broker lets topics have remote.storage.enable. */
public class NoTier implements RemoteStorageManager {
    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data) {
        return Optional.empty();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int from) {
        return InputStream.nullInputStream();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int from, int to) {
        return InputStream.nullInputStream();
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) {
        return InputStream.nullInputStream();
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {}

    @Override
    public void close() {}
}
