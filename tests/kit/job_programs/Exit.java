/** A job's program that ends the JVM that runs it, with exit code 1: the JobManager, in a session cluster. */
public final class Exit {
    public static void main(String[] arguments) {
        System.exit(1);
    }
}
