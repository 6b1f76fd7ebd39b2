import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.Permission;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin's commands in one JVM, and compares what they printed and how they ended at an Apache broker with
 * the same at Hardpoint. Both begin with an empty store; the script puts the same into both, so that what differs
 * is a difference of the brokers. Runs with the tools of any version on the class path.
 *
 *   Mqadmin run SCRIPT smoke|full FOLDER apache|hardpoint NAMESRV BROKER
 *   Mqadmin compare SCRIPT smoke|full FOLDER
 *
 * FOLDER gets what each command printed: NNN-COMMAND-SIDE.txt, and in SIDE/NNN with times, ids, addresses and
 * rates masked, which is what is compared. The two sides may run at the same time. See the head of the script.
 */
public final class Mqadmin {
    /** One of the two brokers with its name server. */
    private static final class Side {
        final String name;
        final String namesrv;
        final String broker;
        final Map<String, String> saved = new LinkedHashMap<>();
        final AtomicLong consumed = new AtomicLong();
        final List<Runnable> stops = new ArrayList<>();
        String last = "";

        Side(String name, String namesrv, String broker) {
            this.name = name;
            this.namesrv = namesrv;
            this.broker = broker;
        }

        String fill(String text) {
            text = text.replace("{ns}", namesrv).replace("{broker}", broker);
            for (Map.Entry<String, String> e : saved.entrySet()) {
                text = text.replace("{" + e.getKey() + "}", e.getValue());
            }
            return text;
        }

        /** What differs from run to run, made equal. */
        String mask(String text) {
            text = text.replace(broker, "BROKER").replace(namesrv, "NAMESRV");
            for (String[] m : MASKS) {
                text = Pattern.compile(m[0]).matcher(text).replaceAll(m[1]);
            }
            // A map's order in Java is that in which the broker wrote the properties, too.
            Matcher m = Pattern.compile("(?<=\\{)[^{}]*UNIQ_KEY[^{}]*(?=})").matcher(text.trim());
            StringBuffer sorted = new StringBuffer();
            while (m.find()) {
                m.appendReplacement(sorted, Matcher.quoteReplacement(Arrays.stream(m.group().split(", ")).sorted().collect(Collectors.joining(", "))));
            }
            return m.appendTail(sorted).toString();
        }
    }

    private static final String[][] MASKS = {
        {"[ \\t]+", " "},
        {"(?m) $", ""},
        {"(?m)^\\s+at .*\\n", ""},
        {"(?m)^.*(WARN|SLF4J).*\\n", ""},
        // In flight: Apache's broker counts what was pulled before progress was reset.
        {"(?m)^(\\S+ broker-a \\d+ \\d+ \\d+ \\d+) \\d+ (TIME|N/A)$", "$1 N $2"},
        {"(Inflight Total:) \\d+", "$1 N"},
        {"(?m)^%RETRY%\\S+ broker-a( 0| N)+ N/A\\n", ""}, // there after the first poll of it ended
        {"(?m)^.*\\brmq_sys_.*\\n", ""}, // topics of services that do without here
        {"\\b[0-9A-F]{32,56}\\b", "ID"},
        {"\\S+@(apache|hardpoint)\\b", "CLIENT"},
        {"\\b\\d+@\\d+#\\d+\\b|\\S+@\\d+#\\d+", "CLIENT"},
        {"\\d{4}-\\d\\d-\\d\\d[ #]\\d\\d:\\d\\d:\\d\\d([:,.]\\d+)?", "TIME"},
        {"\\b\\d{17}\\b|\\b1[78]\\d{11}\\b", "TIME"},
        {"(CommitLog Offset:\\s+|commitLogOffset=|physicOffset=)\\d+", "$1POSITION"},
        {"/?127\\.0\\.0\\.1:\\d+", "ADDRESS"},
        {"V\\d+_\\d+_\\d+(_SNAPSHOT)?", "VERSION"},
        {"\\d+\\.\\d+(E-?\\d+)?", "RATE"},
        {"\\b\\d+ ?ms\\b", "N ms"},
        {"(?m)^(\\S+ \\S+ \\d+ RATE RATE \\d+) \\d+$", "$1 N"}, // statsAll: what came again after a reset, as far as it did
        {"(write perm of broker.* OK), \\d+", "$1, N"}, // the number of topics, with those of services
        {"(?m)\\b(true|false) \\d+$", "$1 N"}, // how long a send took
        {"(#MasterCommitLogMaxOffset) \\d+", "$1 POSITION"},
        {"(DiskRatio_)/.*(/commitlog)", "$1...$2"},
    };

    private static final class Exit extends SecurityException {
        final int code;

        Exit(int code) {
            this.code = code;
        }
    }

    private static final PrintStream OUT = System.out;
    private static volatile boolean ended;
    private static final PrintStream ERR = System.err;

    public static void main(String[] args) {
        int code = 2;
        try {
            List<String[]> lines = script(Paths.get(args[1]), args[2].equals("smoke"));
            Path folder = Paths.get(args[3]);
            if (args[0].equals("compare")) {
                code = compare(lines, folder);
            } else {
                runAll(lines, folder, new Side(args[4], args[5], args[6]));
                code = 0;
            }
        } catch (Throwable e) {
            System.setOut(OUT);
            e.printStackTrace(OUT);
        }
        OUT.flush();
        ended = true;
        Runtime.getRuntime().halt(code); // clients left threads
    }

    /** The lines of a script that are for this run: how, and what. */
    private static List<String[]> script(Path file, boolean smoke) throws Exception {
        List<String[]> lines = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            line = line.trim();
            if (line.isEmpty() || line.startsWith("#")) {
                continue;
            }
            String[] word = line.split("\\s+", 3);
            if (word[0].equals("smoke") || !smoke) {
                lines.add(new String[] {word[1], word.length > 2 ? word[2] : ""});
            }
        }
        return lines;
    }

    private static boolean isCommand(String[] line) {
        return !Arrays.asList("save", "until", "consumer", "producer", "stop").contains(line[0]);
    }

    private static void runAll(List<String[]> lines, Path folder, Side side) throws Exception {
        forbidExit();
        Path masked = Files.createDirectories(folder.resolve(side.name));
        List<String> took = new ArrayList<>();
        run(side, "clusterList"); // what Java says once, it says here
        int number = 0;
        for (String[] line : lines) {
            if (!isCommand(line)) {
                act(side, line[0], line[1]);
                continue;
            }
            long from = System.nanoTime();
            side.last = run(side, side.fill(line[1]));
            took.add(String.format("%6d ms  %s", (System.nanoTime() - from) / 1_000_000, line[1]));
            String name = String.format("%03d", number++);
            Files.write(folder.resolve(name + "-" + line[1].split(" ")[0] + "-" + side.name + ".txt"), side.last.getBytes(StandardCharsets.UTF_8));
            Files.write(masked.resolve(name), side.mask(side.last).getBytes(StandardCharsets.UTF_8));
        }
        side.stops.forEach(Runnable::run);
        Files.write(folder.resolve("took-" + side.name + ".txt"), took);
    }

    private static int compare(List<String[]> lines, Path folder) throws Exception {
        int number = 0, absent = 0;
        List<String> wrong = new ArrayList<>();
        for (String[] line : lines) {
            if (!isCommand(line)) {
                continue;
            }
            String name = String.format("%03d", number++);
            String[] got = new String[2];
            for (int i = 0; i < 2; i++) {
                Path file = folder.resolve(i == 0 ? "apache" : "hardpoint").resolve(name);
                got[i] = shape(line[0], new String(Files.readAllBytes(file), StandardCharsets.UTF_8));
            }
            boolean equal = got[0].equals(got[1]);
            boolean known = line[0].startsWith("known-");
            if (got[0].contains("The sub command") && !line[1].startsWith("nosuch")) {
                absent++;
            }
            if (line[0].startsWith("open-")) {
                OUT.printf("open %s %s: %s%n", name, line[1], equal ? "equal" : "differs");
            } else if (equal == known && !got[0].contains("The sub command")) { // of a later version
                wrong.add(line[1]);
                OUT.printf("--- %s %s: %s%n%s", name, line[1], known ? "equal now, so it is no known difference" : "differs", known ? "" : differences(got));
            }
        }
        wrong.forEach(w -> OUT.println("  " + w));
        OUT.printf("%d commands compared, %d are not of this version, %d are not as expected%n", number, absent, wrong.size());
        return wrong.isEmpty() ? 0 : 1;
    }

    /** A line that is no command. */
    private static void act(Side s, String how, String rest) throws Exception {
        String[] word = rest.split("\\s+", 2);
        switch (how) {
            case "save":
                Matcher m = Pattern.compile(word[1]).matcher(s.last);
                if (!m.find()) {
                    throw new IllegalStateException("save " + rest + ": " + s.name + " printed no such thing:\n" + s.last);
                }
                s.saved.put(word[0], m.group(1));
                return;
            case "until":
                Pattern wanted = Pattern.compile(word[0].replace("_", " "));
                String[] last = {""};
                await(s.name + " never printed " + wanted + " for " + word[1], last, () -> wanted.matcher(s.mask(last[0] = run(s, s.fill(word[1])))).find());
                return;
            case "consumer":
                consumer(s, word[0], word[1]);
                return;
            case "producer":
                DefaultMQProducer p = new DefaultMQProducer(word[0]);
                p.setNamesrvAddr(s.namesrv);
                p.setInstanceName(s.name);
                p.start();
                p.fetchPublishMessageQueues(word[1]);
                p.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
                s.stops.add(p::shutdown);
                return;
            default: // stop
                s.stops.forEach(Runnable::run);
                s.stops.clear();
        }
    }

    private static void consumer(Side s, String group, String rest) throws Exception {
        String[] word = rest.split("\\s+");
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(s.namesrv);
        c.setInstanceName(s.name);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(word[0], "*");
        c.setConsumeThreadMin(1);
        c.setConsumeThreadMax(1);
        c.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            s.consumed.addAndGet(list.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        s.stops.add(c::shutdown);
        long wanted = Long.parseLong(word[1]);
        await(s.name + " did not give the consumer its messages", new String[] {""}, () -> s.consumed.get() >= wanted);
        c.getDefaultMQPushConsumerImpl().persistConsumerOffset();
    }

    private static void await(String what, String[] last, BooleanSupplier done) throws Exception {
        long until = System.nanoTime() + 60_000_000_000L;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException(what + "\n" + last[0]);
            }
            Thread.sleep(200);
        }
    }

    /** Runs one command and returns what it printed, with how it ended. */
    private static String run(Side side, String command) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        String[] end = {"no end within 60 s"};
        Thread t = new Thread(() -> {
            try {
                forget();
                MQAdminStartup.main0(split(command), null);
                end[0] = "exit 0";
            } catch (Exit e) {
                end[0] = "exit " + e.code;
            } catch (Throwable e) {
                end[0] = "thrown " + e;
            }
        });
        try {
            PrintStream to = new PrintStream(bytes, true, "UTF-8");
            System.setOut(to);
            System.setErr(to);
            System.setProperty("rocketmq.namesrv.addr", side.namesrv);
            t.setDaemon(true);
            t.start();
            t.join(60_000);
            to.flush();
            return bytes.toString("UTF-8") + "\n" + end[0] + "\n";
        } catch (Exception e) {
            throw new IllegalStateException(e);
        } finally {
            System.setOut(OUT);
            System.setErr(ERR);
        }
    }

    /** Some commands keep their client, shut down, in the object that the next run would find. */
    private static void forget() throws ReflectiveOperationException {
        for (Field f : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(f.getType())) {
                f.setAccessible(true);
                ((List<?>) f.get(null)).clear();
            }
        }
    }

    /** Words; double quotes keep blanks. */
    private static String[] split(String command) {
        List<String> words = new ArrayList<>();
        Matcher m = Pattern.compile("\"([^\"]*)\"|(\\S+)").matcher(command);
        while (m.find()) {
            words.add(m.group(1) != null ? m.group(1) : m.group(2));
        }
        return words.toArray(new String[0]);
    }

    /** What of an answer is compared. */
    private static String shape(String how, String text) {
        Stream<String> lines = Arrays.stream(text.split("\n")).map(String::trim);
        String[] word = how.replaceAll("^(known|open)-", "").split(":", 2);
        switch (word[0]) {
            case "same":
                return text;
            case "sorted":
                return lines.sorted().collect(Collectors.joining("\n"));
            case "without":
                Pattern left = Pattern.compile(word[1].replace("_", " "));
                return lines.filter(l -> !left.matcher(l).find()).sorted().collect(Collectors.joining("\n"));
            case "of":
            case "have":
                List<String> wanted = Arrays.asList(word[1].split(","));
                return lines.map(l -> l.split("\t| ?[=:] ?", 2)).filter(l -> l.length == 1 ? l[0].startsWith("exit ") : wanted.contains(l[0]))
                    .map(l -> l.length == 1 ? l[0] : word[0].equals("of") ? l[0] + " = " + l[1] : l[0]).sorted().collect(Collectors.joining("\n"));
            case "code":
                return lines.flatMap(l -> Stream.of(l.replaceAll(".*(CODE: \\d+).*", "$1"))).filter(l -> l.matches("CODE: \\d+|exit .*|thrown .*|no end .*")).collect(Collectors.joining("\n"));
            default:
                throw new IllegalArgumentException("what is compared: " + how);
        }
    }

    private static String differences(String[] got) {
        List<String> apache = Arrays.asList(got[0].split("\n"));
        List<String> hardpoint = Arrays.asList(got[1].split("\n"));
        StringBuilder b = new StringBuilder();
        for (String l : new TreeSet<>(apache)) {
            if (!hardpoint.contains(l)) {
                b.append("  apache     ").append(l, 0, Math.min(l.length(), 300)).append('\n');
            }
        }
        for (String l : new TreeSet<>(hardpoint)) {
            if (!apache.contains(l)) {
                b.append("  hardpoint  ").append(l, 0, Math.min(l.length(), 300)).append('\n');
            }
        }
        return b.length() == 0 ? "  the same lines in another order or number\n" : b.toString();
    }

    @SuppressWarnings("removal")
    private static void forbidExit() {
        System.setSecurityManager(new SecurityManager() {
            @Override
            public void checkPermission(Permission p) {
            }

            @Override
            public void checkPermission(Permission p, Object context) {
            }

            @Override
            public void checkExit(int code) {
                if (!ended) {
                    throw new Exit(code);
                }
            }
        });
    }

    private Mqadmin() {
    }
}
