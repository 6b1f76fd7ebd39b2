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
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin's commands in one JVM, and compares what they printed and how they ended at an Apache broker with
 * the same at Hardpoint. Both begin with an empty store; the script puts the same into both, so that what differs
 * is a difference of the brokers. Runs with the tools of any version on the class path.
 *
 *   Mqadmin run SCRIPT smoke|full FOLDER apache|hardpoint NAMESRV BROKER
 *   Mqadmin compare SCRIPT smoke|full FOLDER
 *   Mqadmin ids NAMESRV TOPIC
 *
 * FOLDER gets what each command printed: NNN-COMMAND-SIDE.txt, and in SIDE/NNN with times, ids, addresses and
 * rates masked, which is what is compared. The two sides may run at the same time. See the head of the script, and
 * that of the file differences beside it.
 *
 * ids sends a message and has mqadmin find it by the two ids that the client got.
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
        {"\\b[0-9A-F]{32,56}\\b", "ID"},
        {"\\S+@(apache|hardpoint)\\b", "CLIENT"},
        {"\\b\\d+@\\d+#\\d+\\b|\\S+@\\d+#\\d+", "CLIENT"},
        {"\\d{4}-\\d\\d-\\d\\d[ #]\\d\\d:\\d\\d:\\d\\d([:,.]\\d+)?", "TIME"},
        {"\\b\\d{17}\\b|\\b1[78]\\d{11}\\b", "TIME"},
        {"(CommitLog Offset:\\s+|commitLogOffset=|physicOffset=)\\d+", "$1POSITION"},
        {"/?127\\.0\\.0\\.1:\\d+", "ADDRESS"},
        {"\\d+\\.\\d+(E-?\\d+)?", "RATE"},
        {"\\b\\d+ ?ms\\b", "N ms"},
        {"(?m)\\b(true|false) \\d+$", "$1 N"}, // how long a send took
        {"(#MasterCommitLogMaxOffset) \\d+", "$1 POSITION"},
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
            if (args[0].equals("ids")) {
                ids(args[1], args[2]);
                finish(0);
            }
            List<String[]> lines = script(Paths.get(args[1]), args[2].equals("smoke"));
            Path folder = Paths.get(args[3]);
            if (args[0].equals("compare")) {
                code = compare(lines, folder, Paths.get(args[1]).resolveSibling("differences"));
            } else {
                runAll(lines, folder, new Side(args[4], args[5], args[6]));
                code = 0;
            }
        } catch (Throwable e) {
            System.setOut(OUT);
            e.printStackTrace(OUT);
        }
        finish(code);
    }

    private static void finish(int code) {
        System.setOut(OUT);
        OUT.flush();
        ended = true;
        Runtime.getRuntime().halt(code); // clients left threads
    }

    /** Messages that a client sent are found by the ids that it got, which tell the address that the broker advertises. */
    private static void ids(String namesrv, String topic) throws Exception {
        forbidExit();
        DefaultMQProducer p = new DefaultMQProducer("P");
        p.setNamesrvAddr(namesrv);
        p.start();
        String[] last = {""};
        SendResult[] sent = {null};
        await("no message could be sent to " + namesrv, last, () -> {
            try {
                sent[0] = p.send(new Message(topic, "", "the-key", "text".getBytes(StandardCharsets.UTF_8)));
                return true;
            } catch (Exception e) {
                last[0] = e.toString();
                return false;
            }
        });
        p.shutdown();
        Side side = new Side("hardpoint", namesrv, "");
        String byId = "queryMsgById -t " + topic + " -i " + sent[0].getOffsetMsgId();
        String byKey = "queryMsgByUniqueKey -t " + topic + " -i " + sent[0].getMsgId();
        for (String command : new String[] {byId, byKey}) {
            await("mqadmin " + command + " does not find the message", last, () -> {
                last[0] = run(side, command);
                return last[0].contains("the-key") && last[0].contains(sent[0].getMsgId()) && last[0].contains("exit 0");
            });
        }
        OUT.println(sent[0].getOffsetMsgId());
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
            if (word[1].matches("(apache|hardpoint)\\d")) { // only with tools of that version
                if (!tools().startsWith("V" + word[1].substring(word[1].length() - 1))) {
                    continue;
                }
                word[1] = word[1].substring(0, word[1].length() - 1);
            }
            if (word[0].equals("smoke") || !smoke) {
                lines.add(new String[] {word[1], word.length > 2 ? word[2] : ""});
            }
        }
        return lines;
    }

    private static String tools() {
        return MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION);
    }

    private static boolean isCommand(String[] line) {
        return !isDifference(line) && !Arrays.asList("save", "until", "consumer", "producer", "stop").contains(line[0]);
    }

    private static boolean isDifference(String[] line) {
        return line[0].equals("apache") || line[0].equals("hardpoint");
    }

    private static void runAll(List<String[]> lines, Path folder, Side side) throws Exception {
        forbidExit();
        Path masked = Files.createDirectories(folder.resolve(side.name));
        List<String> took = new ArrayList<>();
        run(side, "clusterList"); // what Java says once, it says here
        int number = 0;
        for (String[] line : lines) {
            if (!isCommand(line)) {
                if (!isDifference(line)) {
                    act(side, line[0], line[1]);
                }
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

    private static int compare(List<String[]> lines, Path folder, Path differences) throws Exception {
        int number = 0, absent = 0;
        List<String> wrong = new ArrayList<>();
        for (int at = 0; at < lines.size(); at++) {
            String[] line = lines.get(at);
            if (!isCommand(line)) {
                continue;
            }
            String name = String.format("%03d", number++);
            String[] got = new String[2];
            for (int i = 0; i < 2; i++) {
                String side = i == 0 ? "apache" : "hardpoint";
                Path file = folder.resolve(side).resolve(name);
                if (line[0].startsWith("config:")) { // with what is masked elsewhere
                    file = folder.resolve(name + "-" + line[1].split(" ")[0] + "-" + side + ".txt");
                }
                got[i] = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
            }
            if (got[0].contains("The sub command") && !line[1].startsWith("nosuch")) { // of a later version
                absent++;
                continue;
            }
            String why;
            if (line[0].startsWith("config:")) {
                why = Settings.compare(line[0].substring("config:".length()), differences, got);
            } else {
                got[0] = shape(line[0], line[0].startsWith("more:") ? less(got[0], Long.parseLong(line[0].substring(5))) : got[0]);
                got[1] = shape(line[0], got[1]);
                why = apart(got, lines.subList(at + 1, lines.size()));
                if (why.isEmpty() && !got[0].equals(got[1])) {
                    why = differences(got);
                }
            }
            if (!why.isEmpty()) {
                wrong.add(line[1]);
                OUT.printf("--- %s %s: not as expected%n%s", name, line[1], why);
            }
        }
        wrong.forEach(w -> OUT.println("  " + w));
        OUT.printf("%d commands compared, %d are not of this version, %d are not as expected%n", number, absent, wrong.size());
        return wrong.isEmpty() ? 0 : 1;
    }

    /** Takes the lines out that one of the two is known to print, and says what of them is not there. */
    private static String apart(String[] got, List<String[]> after) {
        StringBuilder missing = new StringBuilder();
        for (int i = 0; i < 2; i++) {
            String side = i == 0 ? "apache" : "hardpoint";
            List<String> left = null;
            for (String[] line : after) {
                if (!isDifference(line)) {
                    break;
                }
                if (left == null) {
                    left = Arrays.stream(got[i].split("\n")).map(String::trim).filter(l -> !l.isEmpty()).collect(Collectors.toList());
                }
                if (line[0].equals(side) && !left.remove(line[1])) {
                    missing.append("  ").append(side).append(" does not print: ").append(line[1]).append('\n');
                }
            }
            if (left != null) {
                got[i] = String.join("\n", left);
            }
        }
        return missing.length() == 0 ? "" : missing + differences(got);
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
        long before = s.consumed.get();
        c.start();
        s.stops.add(c::shutdown);
        long wanted = Long.parseLong(word[1]);
        await(s.name + " did not give the consumer its messages", new String[] {""}, () -> s.consumed.get() - before >= wanted);
        c.getDefaultMQPushConsumerImpl().persistConsumerOffset();
    }

    private static void await(String what, String[] last, BooleanSupplier done) throws Exception {
        long until = System.nanoTime() + 240_000_000_000L;
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
        String[] end = {"no end within 240 s"};
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
            t.join(240_000);
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

    /** The numbers at the ends of lines that end well, reduced. */
    private static String less(String text, long n) {
        return Pattern.compile("(?m)(?<= OK, )\\d+$").matcher(text).replaceAll(m -> String.valueOf(Long.parseLong(m.group()) - n));
    }

    /** What of an answer is compared. */
    private static String shape(String how, String text) {
        Stream<String> lines = Arrays.stream(text.split("\n")).map(String::trim);
        String[] word = how.split(":", 3);
        switch (word[0]) {
            case "same":
            case "more":
                return text;
            case "sorted":
                return lines.sorted().collect(Collectors.joining("\n"));
            case "without":
                Pattern left = Pattern.compile(word[1].replace("_", " "));
                return lines.filter(l -> !left.matcher(l).find()).sorted().collect(Collectors.joining("\n"));
            case "cut":
                Pattern gone = Pattern.compile(word[2].replace("_", " "));
                return lines.filter(l -> !gone.matcher(l).find()).map(l -> Arrays.stream(l.split(" ")).limit(Long.parseLong(word[1])).collect(Collectors.joining(" "))).sorted().collect(Collectors.joining("\n"));
            case "of":
                List<String> wanted = Arrays.asList(word[1].split(","));
                return lines.map(l -> l.split("\t| ?[=:] ?", 2)).filter(l -> l.length == 1 ? l[0].startsWith("exit ") : wanted.contains(l[0]))
                    .map(l -> l.length == 1 ? l[0] : l[0] + " = " + l[1]).sorted().collect(Collectors.joining("\n"));
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
