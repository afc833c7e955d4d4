import java.io.File;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.configuration.GlobalConfiguration;

/** Prints the options of Flink's configuration in each folder that is given, one line of JSON each; or why Flink does not start with it. */
public final class FlinkOptions {
    public static void main(String[] folders) {
        for (String folder : folders) {
            try {
                Map<String, String> options = new TreeMap<>(GlobalConfiguration.loadConfiguration(folder).toMap());
                StringBuilder line = new StringBuilder();
                options.forEach((key, value) -> line.append(line.length() > 0 ? ", " : "").append(text(key)).append(": ").append(text(value)));
                System.out.println("= {" + line + "}");
            } catch (Throwable refused) {
                System.out.println("= " + text(String.valueOf(refused)));
            }
        }
    }

    private static String text(String text) {
        StringBuilder json = new StringBuilder("\"");
        text.chars().forEach(c -> json.append(c < 128 && c > 31 && c != '"' && c != '\\' ? String.valueOf((char) c) : String.format("\\u%04x", c)));
        return json.append('"').toString();
    }
}
