import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.http.HttpServerTransport;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;

/**
 * A real Elasticsearch of one node for the tests, on a port of loopback that it prints. It ends when its input does, so
 * that a test that dies leaves none behind.
 *
 * <p>Usage: Engine HOME DATA, where HOME has modules/transport-netty4, as engine/install lays it out.
 */
public class Engine {
    public static void main(String[] args) throws Exception {
        LogConfigurator.configureESLogging();
        Settings settings = Settings.builder()
            .put("path.home", args[0])
            .put("path.data", args[1])
            .put("path.logs", args[1])
            .put("node.name", "engine")
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1")
            .put("http.port", "0") // the kernel's choice
            .put("transport.port", "0")
            // otherwise a disk that is more than 85 % full gets no shard
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Files.createDirectories(Path.of(args[0], "config"));
        try (Node node = new Node(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "engine"))) {
            node.start();
            System.out.println(node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress());
            while (System.in.read() >= 0) {
            }
        }
    }
}
