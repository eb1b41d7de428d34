import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.HashSet;

import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;

/** Refuses to have some configs of topics set. */
public class ForbidConfigs implements AlterConfigPolicy {
    private Set<String> forbidden = Set.of();

    @Override
    public void configure(Map<String, ?> configs) {
        forbidden = new HashSet<>(Arrays.asList(String.valueOf(configs.get("harness.forbidden.configs")).split(",")));
    }

    @Override
    public void validate(RequestMetadata request) {
        if (request.resource().type() != ConfigResource.Type.TOPIC) {
            return;
        }
        request.configs().forEach((name, value) -> {
            if (value != null && forbidden.contains(name)) {
                throw new PolicyViolationException("no topic may have its own " + name);
            }
        });
    }

    @Override
    public void close() {}
}
