import java.io.PrintStream;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.leaderretrieval.LeaderRetrievalListener;
import org.apache.flink.runtime.util.ZooKeeperUtils;

/**
 * What Flink's own leader retrieval notifies its listeners of: {@code FlinkListener -Dkey=value… PATH…}.
 *
 * <p>The settings are Flink's ({@code high-availability.zookeeper.*}; which connection state clears a leader is
 * {@code …client.tolerate-suspended-connections}); a path is a component's, below the namespace: {@code /leader/dispatcher}. Each call of
 * a listener is one line of JSON on stdout, as {@code flink-ha-sidecar watch --view flink --output json} has it, flushed at once. What
 * else Flink says is on stderr. It ends when it is killed.
 */
public final class FlinkListener implements LeaderRetrievalListener {
    private static final Pattern JOB = Pattern.compile("(?:job-)?([0-9a-f]{32})");
    private static final DateTimeFormatter MICROSECONDS =
            DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS'Z'").withZone(ZoneOffset.UTC);

    private final PrintStream calls;
    private final String component;
    private final String job;

    private FlinkListener(PrintStream calls, String path) {
        this.calls = calls;
        Matcher ofJob = JOB.matcher(path.substring(path.lastIndexOf('/') + 1));
        this.job = ofJob.matches() ? ofJob.group(1) : null;
        this.component = job == null ? path.substring(path.lastIndexOf('/') + 1) : "job";
    }

    @Override
    public void notifyLeaderAddress(String address, UUID sessionId) {
        Instant at = Instant.now();
        String line = String.format(
                "{\"at\": %s, \"component\": %s, \"job_id\": %s, \"leader_address\": %s, \"leader_session_id\": %s}%n",
                json(MICROSECONDS.format(at)), json(component), json(job), json(address), json(sessionId));
        synchronized (calls) {
            calls.print(line);
            calls.flush();
        }
    }

    @Override
    public void handleError(Exception error) {
        error.printStackTrace();
    }

    private static String json(Object value) {
        return value == null ? "null" : '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream calls = System.out;
        System.setOut(System.err); // where Log4j's console is, unless it is configured otherwise
        Configuration settings = new Configuration();
        for (String argument : arguments) {
            if (argument.startsWith("-D")) {
                String[] setting = argument.substring(2).split("=", 2);
                settings.setString(setting[0], setting[1]);
            }
        }
        var client = ZooKeeperUtils.startCuratorFramework(settings, Throwable::printStackTrace).asCuratorFramework();
        for (String path : arguments) {
            if (!path.startsWith("-D")) {
                ZooKeeperUtils.createLeaderRetrievalService(client, path, settings).start(new FlinkListener(calls, path));
            }
        }
        Thread.currentThread().join();
    }
}
