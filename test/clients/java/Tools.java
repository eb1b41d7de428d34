import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools one after the other in this JVM and prints what each wrote to standard output, and
 * its exit status. Argument: a file with a line for each run, fields in base64 between spaces: part, step, class,
 * what the output must match at last ("": it is run once), standard input, arguments.
 */
public class Tools {
    /** How a tool ended at first: some take the exception of their own exit for a failure. */
    static volatile Integer status;

    static class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    static void exit(int code) {
        if (status == null) status = code;
        throw new Exited();
    }

    static String escape(String s) {
        return s.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r");
    }

    static final long LIMIT_MS = 60_000;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out, err = System.err;
        InputStream in = System.in;
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        String part = "";
        for (String line : Files.readAllLines(Paths.get(args[0]))) {
            List<String> f = new ArrayList<>();
            for (String field : line.split(" ", -1)) f.add(new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8));
            if (!f.get(0).equals(part)) {
                part = f.get(0);
                out.println("P\t" + part);
            }
            String[] argv = f.subList(5, f.size()).toArray(new String[0]);
            Pattern wanted = f.get(3).isEmpty() ? null : Pattern.compile(f.get(3), Pattern.DOTALL);
            long end = System.currentTimeMillis() + LIMIT_MS;
            String seen;
            while (true) {
                ByteArrayOutputStream stdout = new ByteArrayOutputStream(), stderr = new ByteArrayOutputStream();
                System.setOut(new PrintStream(stdout, true));
                System.setErr(new PrintStream(stderr, true));
                System.setIn(new ByteArrayInputStream(f.get(4).getBytes(StandardCharsets.UTF_8)));
                status = null;
                String failed = null;
                try {
                    Class.forName(f.get(2)).getMethod("main", String[].class).invoke(null, (Object) argv);
                } catch (InvocationTargetException e) {
                    if (!(e.getCause() instanceof Exited)) failed = e.getCause().toString();
                } catch (ReflectiveOperationException e) {
                    failed = e.toString();
                } finally {
                    System.out.flush();
                    System.setOut(out);
                    System.setErr(err);
                    System.setIn(in);
                }
                seen = "exit " + (status == null ? 0 : status) + (failed == null ? "" : " by " + failed) + "\n" + stdout;
                if (stderr.size() > 0) err.println(part + " " + f.get(1) + ": " + stderr);
                if (wanted == null || wanted.matcher(seen).find()) break;
                if (System.currentTimeMillis() > end) {
                    out.println("F\t" + escape(f.get(1) + ": the output never matched " + f.get(3) + ": " + seen));
                    break;
                }
                Thread.sleep(200);
            }
            out.println("O\t" + escape(f.get(1)) + "\t" + escape(seen));
            out.flush();
        }
        out.println("D");
        out.flush();
        Runtime.getRuntime().halt(0);
    }
}
