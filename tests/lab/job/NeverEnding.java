import org.apache.flink.api.common.functions.FilterFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A job that never ends: it counts slowly, completes a checkpoint every two seconds, and prints nothing. */
public final class NeverEnding {
    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.enableCheckpointing(2_000);
        environment.fromSequence(0, Long.MAX_VALUE).filter(new SlowlyNothing<>()).print();
        environment.execute("never-ending");
    }

    /** Lets ten numbers a second arrive and none through. Named and generic, because every javac compiles that alike. */
    public static final class SlowlyNothing<T> implements FilterFunction<T> {
        private static final long serialVersionUID = 1L;

        @Override
        public boolean filter(T number) throws InterruptedException {
            Thread.sleep(100);
            return false;
        }
    }
}
