import java.util.ArrayList;
import java.util.List;

/** A job's program that fills the heap of the JVM that runs it, and keeps it full: of the JobManager, in a session cluster. */
public final class HeapFiller {
    private static final int BLOCK_BYTES = 1 << 16;

    public static void main(String[] arguments) throws InterruptedException {
        List<byte[]> blocks = new ArrayList<>();
        while (true) {
            try {
                blocks.add(new byte[BLOCK_BYTES]);
            } catch (OutOfMemoryError full) {
                Thread.sleep(10); // the others' turn to fail
            }
        }
    }
}
