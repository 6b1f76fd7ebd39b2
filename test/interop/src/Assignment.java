import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** How queues are shared: by the client's strategies, and by the broker for clients that ask it. */
final class Assignment {
    private Assignment() {}

    /** The golden files of Hardpoint's allocators are what the client's strategies give. */
    static void strategies(Path allocators) throws Exception {
        int n = compare(allocators.resolve("consistenthash/testdata/java")) + compare(allocators.resolve("machineroom/testdata/java"));
        System.out.printf("%d allocations are those of the client's strategies%n", n);
    }

    static int compare(Path file) throws Exception {
        int n = 0;
        for (String block : Files.readString(file).split("(?m)^(?=allocate )")) {
            if (!block.startsWith("allocate ")) {
                continue;
            }
            String[] parts = block.split("(?m)^----\n", 2);
            String want = parts[1].strip();
            StringBuilder got = new StringBuilder();
            List<MessageQueue> queues = queues(parts[0]);
            List<String> ids = ids(parts[0]);
            AllocateMessageQueueStrategy s = strategy(file, parts[0]);
            for (int i = 0; i < ids.size(); i++) {
                List<MessageQueue> has = new ArrayList<>(s.allocate("g", ids.get(i), queues, ids));
                Collections.sort(has);
                got.append(i).append(':');
                for (MessageQueue q : has) {
                    got.append(' ').append(name(q));
                }
                got.append('\n');
            }
            Interop.check(got.toString().strip().equals(want), file + ": " + parts[0] + "the client gives\n" + got);
            n++;
        }
        return n;
    }

    static String argument(String head, String name) {
        Matcher m = Pattern.compile("\\b" + name + "(?:=\\(?([^ )\n]*)|\": *\\[?([^]}]*))").matcher(head);
        return !m.find() ? null : m.group(1) != null ? m.group(1) : m.group(2);
    }

    static List<MessageQueue> queues(String head) {
        List<MessageQueue> all = new ArrayList<>();
        String brokers = argument(head, "brokers");
        if (brokers == null) {
            for (int i = 0; i < Integer.parseInt(argument(head, "queues")); i++) {
                all.add(new MessageQueue("t", "broker-" + (char) ('a' + i / 4 % 26), i % 4));
            }
            return all;
        }
        for (String b : brokers.split(",")) {
            for (int i = 0; i < Integer.parseInt(argument(head, "each")); i++) {
                all.add(new MessageQueue("t", b, i));
            }
        }
        Collections.sort(all);
        return all;
    }

    static List<String> ids(String head) {
        String ids = argument(head, "ids");
        if (ids != null) {
            return Arrays.asList(ids.split(","));
        }
        List<String> all = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(argument(head, "members")); i++) {
            all.add(String.format("10.0.0.%03d@1", i));
        }
        return all;
    }

    static AllocateMessageQueueStrategy strategy(Path file, String head) {
        if (file.toString().contains("machineroom")) {
            AllocateMessageQueueByMachineRoom s = new AllocateMessageQueueByMachineRoom();
            s.setConsumeridcs(new HashSet<>(Arrays.asList(argument(head, "rooms").replace("\"", "").split(", *"))));
            return s;
        }
        String nodes = argument(head, "virtualNodes");
        return nodes == null ? new AllocateMessageQueueConsistentHash() : new AllocateMessageQueueConsistentHash(Integer.parseInt(nodes));
    }

    /** Consumers that let the broker share: one has all queues, two have halves, one has all again. */
    static void shared(String ns, String topic) throws Exception {
        DefaultMQProducer p = Interop.producer(ns);
        p.createTopic("TBW102", topic, 8, null);
        Map<String, Set<String>> has = new ConcurrentHashMap<>();
        DefaultMQPushConsumer one = sharer(ns, topic, "one", q -> note(has, "one", q));
        await(p, topic, has, Map.of("one", queues("a", 0, 1, 2, 3, 4, 5, 6, 7)));
        DefaultMQPushConsumer two = sharer(ns, topic, "two", q -> note(has, "two", q));
        await(p, topic, has, Map.of("one", queues("a", 0, 1, 2, 3), "two", queues("a", 4, 5, 6, 7)));
        one.shutdown();
        await(p, topic, has, Map.of("two", queues("a", 0, 1, 2, 3, 4, 5, 6, 7)));
        two.shutdown();
        p.shutdown();
        System.out.println("the broker shared " + topic + " between two consumers with clientRebalance=false");
    }

    /**
     * Two brokers, and two members of a group whose attribute names the allocator circle: both go by
     * it, then by the one that `hardpoint group assign` sets, and when the process of one is killed
     * the other has all.
     */
    static void pair(String ns, String topic, String hardpoint) throws Exception {
        DefaultMQProducer p = Interop.producer(ns);
        p.createTopic("TBW102", topic, 4, null);
        Map<String, Set<String>> has = new ConcurrentHashMap<>();
        DefaultMQPushConsumer one = sharer(ns, topic, "one", q -> note(has, "one", q));
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Xmx128m", "-Duser.home=" + System.getProperty("user.home"), "-cp", System.getProperty("java.class.path"), "Interop", "member", ns, topic, "two"));
        Process two = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try {
            Thread reader = new Thread(() -> new BufferedReader(new InputStreamReader(two.getInputStream())).lines()
                .filter(line -> line.startsWith("has ")).forEach(line -> note(has, "two", line.substring(4))));
            reader.setDaemon(true);
            reader.start();
            await(p, topic, has, Map.of(
                "one", union(queues("a", 0, 2), queues("b", 0, 2)),
                "two", union(queues("a", 1, 3), queues("b", 1, 3))));
            Process assign = new ProcessBuilder(hardpoint, "group", "assign", "interop-sharers", topic, "--allocator", "averagely", "--namesrv", ns, "--yes")
                .redirectErrorStream(true).start();
            String said = new String(assign.getInputStream().readAllBytes());
            Interop.check(assign.waitFor() == 0 && said.contains("moved: 4 of 8 queues"), "group assign: " + said);
            await(p, topic, has, Map.of("one", queues("a", 0, 1, 2, 3), "two", queues("b", 0, 1, 2, 3)));
        } finally {
            two.destroyForcibly().waitFor();
        }
        await(p, topic, has, Map.of("one", union(queues("a", 0, 1, 2, 3), queues("b", 0, 1, 2, 3))));
        one.shutdown();
        p.shutdown();
        System.out.println("two brokers shared " + topic + " by their allocators between two processes, of which one was killed");
    }

    /** A member that tells on stdout what it gets, until it is killed. */
    static void member(String ns, String topic, String name) throws Exception {
        sharer(ns, topic, name, q -> System.out.println("has " + q));
        Thread.currentThread().join();
    }

    static void note(Map<String, Set<String>> has, String name, String queue) {
        has.computeIfAbsent(name, k -> ConcurrentHashMap.newKeySet()).add(queue);
    }

    static Set<String> queues(String broker, int... ids) {
        Set<String> all = new TreeSet<>();
        for (int id : ids) {
            all.add(broker + id);
        }
        return all;
    }

    static Set<String> union(Set<String> a, Set<String> b) {
        Set<String> all = new TreeSet<>(a);
        all.addAll(b);
        return all;
    }

    static String name(MessageQueue q) {
        return q.getBrokerName().replaceFirst("^broker-", "") + q.getQueueId();
    }

    static DefaultMQPushConsumer sharer(String ns, String topic, String name, Consumer<String> queue) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer("interop-sharers");
        c.setNamesrvAddr(ns);
        c.setInstanceName(name);
        c.setClientRebalance(false);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            queue.accept(name(context.getMessageQueue()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        return c;
    }

    /** Sends a message to each queue again and again until they come as they should. */
    static void await(DefaultMQProducer p, String topic, Map<String, Set<String>> has, Map<String, Set<String>> want) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
        List<MessageQueue> all = p.fetchPublishMessageQueues(topic);
        while (!has.equals(want)) {
            Interop.check(System.nanoTime() < deadline, "shares " + has + ", wanted " + want);
            has.clear();
            for (MessageQueue q : all) {
                p.send(new Message(topic, "x".getBytes()), q);
            }
            TimeUnit.MILLISECONDS.sleep(500);
        }
    }
}
