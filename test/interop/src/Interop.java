import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Produces with the official client and writes down what was acknowledged; consumes, pulls and
 * queries, and compares message by message with what was written down. Ends with 1 on any
 * difference. The lines of a manifest: key, queue, offset, offset id, tag, SHA-256 of the body.
 */
public final class Interop {
    private static final String[] TAGS = {"TagA", "TagB", "Aa", "BB", ""};

    record Entry(String key, int queue, long offset, String id, String tag, String sum) {
        static Entry parse(String line) {
            String[] f = line.split("\t", -1);
            return new Entry(f[0], Integer.parseInt(f[1]), Long.parseLong(f[2]), f[3], f[4], f[5]);
        }

        String line() {
            return String.join("\t", key, "" + queue, "" + offset, id, tag, sum);
        }
    }

    public static void main(String[] a) throws Exception {
        int code = 1;
        try {
            // Several commands are separated by "then": a JVM takes longer to start than most of them.
            for (int from = 0; from < a.length; ) {
                int to = from;
                while (to < a.length && !a[to].equals("then")) {
                    to++;
                }
                run(Arrays.copyOfRange(a, from, to));
                from = to + 1;
            }
            code = 0;
        } catch (Throwable t) {
            System.out.println("FAILED " + Arrays.toString(a) + ": " + t);
            t.printStackTrace(System.out);
        }
        System.out.flush();
        Runtime.getRuntime().halt(code); // the client leaves threads behind
    }

    static void run(String[] a) throws Exception {
        switch (a[0]) {
            case "produce" -> produce(a[1], a[2], Integer.parseInt(a[3]), Path.of(a[4]));
            case "flood" -> flood(a[1], a[2], Path.of(a[3]));
            case "steady" -> Steady.send(a[1], a[2], Integer.parseInt(a[3]), Path.of(a[4]), Path.of(a[5]));
            case "consume" -> consume(a[1], a[2], a[3], manifests(a, 4));
            case "verify" -> verify(a[1], a[2], true, true, manifests(a, 3));
            case "verify-acked" -> verify(a[1], a[2], false, true, manifests(a, 3));
            case "verify-without-keys" -> verify(a[1], a[2], false, false, manifests(a, 3));
            case "strategies" -> Assignment.strategies(Path.of(a[1]));
            case "shared" -> Assignment.shared(a[1], a[2]);
            case "pair" -> Assignment.pair(a[1], a[2], a[3]);
            case "member" -> Assignment.member(a[1], a[2], a[3]);
            default -> throw new IllegalArgumentException("unknown command " + a[0]);
        }
    }

    static Map<String, Entry> manifests(String[] a, int from) throws Exception {
        Map<String, Entry> all = new HashMap<>();
        for (int i = from; i < a.length; i++) {
            for (String line : Files.readAllLines(Path.of(a[i]))) {
                Entry e = Entry.parse(line);
                check(all.put(e.key, e) == null, "key " + e.key + " twice in the manifests");
            }
        }
        check(!all.isEmpty(), "the manifests are empty");
        return all;
    }

    static void check(boolean ok, String what) {
        if (!ok) {
            throw new IllegalStateException(what);
        }
    }

    static String sum(byte[] body) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    }

    static DefaultMQProducer producer(String ns) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("interop-producer");
        p.setNamesrvAddr(ns);
        p.setSendMsgTimeout(10_000);
        p.setDefaultTopicQueueNums(4);
        p.start();
        // Not before the topics from which others are made are known.
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (System.nanoTime() < deadline) {
            try {
                p.fetchPublishMessageQueues("TBW102");
                break;
            } catch (MQClientException e) {
                TimeUnit.MILLISECONDS.sleep(200);
            }
        }
        return p;
    }

    static Message message(String topic, String key, int i, Random random) {
        int size = switch (i % 10) {
            case 0 -> 1;
            case 1 -> 100_000; // compressed by the client if it can be
            default -> 50 + random.nextInt(2000);
        };
        byte[] body = new byte[size];
        if (i % 20 == 1) {
            random.nextBytes(body);
        } else {
            Arrays.fill(body, (byte) ('a' + i % 26));
        }
        Message m = new Message(topic, TAGS[i % TAGS.length], key + " also-" + key, body);
        m.putUserProperty("number", "" + i);
        m.putUserProperty("text", "Füße, 消息");
        return m;
    }

    static Entry entry(Message m, SendResult r, String id, int skip) throws Exception {
        check(r.getSendStatus() == SendStatus.SEND_OK, "send status " + r.getSendStatus());
        String tag = m.getTags() == null ? "" : m.getTags();
        return new Entry(m.getKeys().split(" ")[0], r.getMessageQueue().getQueueId(), r.getQueueOffset() + skip, id, tag, sum(m.getBody()));
    }

    /** Sends count messages: by turns sync, async and in batches; one-way ones have no place to write down. */
    static void produce(String ns, String topic, int count, Path manifest) throws Exception {
        DefaultMQProducer p = producer(ns);
        List<Entry> acked = new ArrayList<>();
        Random random = new Random(7);
        String name = manifest.getFileName().toString();
        int sync = 0, async = 0, batch = 0;
        for (int i = 0; i < count; ) {
            switch (i / 10 % 3) {
                case 0 -> {
                    Message m = message(topic, name + "-" + i, i++, random);
                    SendResult r = p.send(m);
                    acked.add(entry(m, r, r.getOffsetMsgId(), 0));
                    sync++;
                }
                case 1 -> {
                    int n = Math.min(10, count - i);
                    CountDownLatch left = new CountDownLatch(n);
                    List<Throwable> errors = new ArrayList<>();
                    for (int k = 0; k < n; k++) {
                        Message m = message(topic, name + "-" + i, i++, random);
                        byte[] body = m.getBody();
                        p.send(m, new SendCallback() {
                            @Override
                            public void onSuccess(SendResult r) {
                                synchronized (acked) {
                                    try {
                                        m.setBody(body);
                                        acked.add(entry(m, r, r.getOffsetMsgId(), 0));
                                    } catch (Throwable t) {
                                        errors.add(t);
                                    }
                                }
                                left.countDown();
                            }

                            @Override
                            public void onException(Throwable t) {
                                synchronized (acked) {
                                    errors.add(t);
                                }
                                left.countDown();
                            }
                        });
                    }
                    check(left.await(30, TimeUnit.SECONDS), "async sends without an answer");
                    check(errors.isEmpty(), "async sends failed: " + errors);
                    async += n;
                }
                default -> {
                    int n = Math.min(10, count - i);
                    List<Message> ms = new ArrayList<>();
                    for (int k = 0; k < n; k++) {
                        Message m = message(topic, name + "-" + i, i + 2, random); // small ones: a batch is one message to the broker
                        i++;
                        if (m.getBody().length > 3000) {
                            m.setBody("a small body".getBytes(StandardCharsets.UTF_8));
                        }
                        ms.add(m);
                    }
                    SendResult r = p.send(ms);
                    String[] ids = r.getOffsetMsgId().split(",");
                    check(ids.length == n, n + " messages in a batch, " + ids.length + " ids");
                    for (int k = 0; k < n; k++) {
                        acked.add(entry(ms.get(k), r, ids[k], k));
                    }
                    batch += n;
                }
            }
        }
        List<String> lines = new ArrayList<>();
        for (Entry e : acked) {
            lines.add(e.line());
        }
        Files.write(manifest, lines);
        p.shutdown();
        check(acked.size() == count, count + " sent, " + acked.size() + " acknowledged");
        System.out.printf("produced %d to %s: %d sync, %d async, %d in batches%n", count, topic, sync, async, batch);
    }

    /** Sends from four threads until the broker is gone; every acknowledgement is written down at once. */
    static void flood(String ns, String topic, Path manifest) throws Exception {
        DefaultMQProducer p = producer(ns);
        p.setRetryTimesWhenSendFailed(0);
        AtomicInteger n = new AtomicInteger();
        String name = manifest.getFileName().toString();
        try (BufferedWriter out = Files.newBufferedWriter(manifest)) {
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 4; t++) {
                Thread thread = new Thread(() -> {
                    try {
                        for (;;) {
                            int i = n.getAndIncrement();
                            Message m = message(topic, name + "-" + i, 2 + i % 8, new Random(i));
                            SendResult r = p.send(m, 10_000); // the first failure ends this thread: a slow machine is none
                            Entry e = entry(m, r, r.getOffsetMsgId(), 0);
                            synchronized (out) {
                                out.write(e.line() + "\n");
                                out.flush();
                            }
                        }
                    } catch (Exception gone) {
                        // the broker was killed
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread t : threads) {
                t.join();
            }
        }
        System.out.printf("flooded %s: %d acknowledged before the broker was gone%n", topic, Files.readAllLines(manifest).size());
    }

    /** Two members of a group consume everything in the manifests, each message once. */
    static void consume(String ns, String topic, String group, Map<String, Entry> want) throws Exception {
        Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();
        Map<String, String> wrong = new ConcurrentHashMap<>();
        Set<String> members = ConcurrentHashMap.newKeySet();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
            String name = "member-" + i;
            c.setNamesrvAddr(ns);
            c.setInstanceName(name);
            c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerConcurrently) (ms, context) -> {
                for (MessageExt m : ms) {
                    String why = differs(want.get(key(m)), m);
                    if (why != null) {
                        wrong.put(key(m), why);
                    }
                    seen.computeIfAbsent(key(m), k -> new AtomicInteger()).incrementAndGet();
                    members.add(name);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();
            consumers.add(c);
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
        while (seen.size() < want.size() && wrong.isEmpty() && System.nanoTime() < deadline) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        check(wrong.isEmpty(), "consumed messages differ: " + first(wrong));
        check(seen.size() == want.size(), want.size() + " wanted, " + seen.size() + " consumed");
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        // A rebalance while members join may deliver twice; losing is not allowed.
        long again = seen.values().stream().filter(x -> x.get() > 1).count();
        System.out.printf("consumed %d of %d from %s by %d members, %d of them more than once%n", seen.size(), want.size(), topic, members.size(), again);
    }

    static Object first(Map<String, String> m) {
        return m.size() + " of them, e.g. " + m.entrySet().stream().findFirst();
    }

    static String key(MessageExt m) {
        return m.getKeys() == null ? "" : m.getKeys().split(" ")[0];
    }

    static String differs(Entry e, MessageExt m) {
        try {
            if (e == null) {
                return "nobody was told that it is stored";
            }
            String tag = m.getTags() == null ? "" : m.getTags();
            if (e.queue != m.getQueueId() || e.offset != m.getQueueOffset()) {
                return "is at " + m.getQueueId() + "/" + m.getQueueOffset() + ", acknowledged at " + e.queue + "/" + e.offset;
            }
            if (!e.tag.equals(tag) || !e.sum.equals(sum(m.getBody()))) {
                return "tag " + tag + " and " + m.getBody().length + " bytes of another sum than sent";
            }
            if (!"Füße, 消息".equals(m.getUserProperty("text"))) {
                return "property text is " + m.getUserProperty("text");
            }
            return null;
        } catch (Exception x) {
            return x.toString();
        }
    }

    /** A broker that has just started may not have told its name server of its topics. */
    static Set<MessageQueue> queues(DefaultMQPullConsumer c, String topic) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        for (;;) {
            try {
                return c.fetchSubscribeMessageQueues(topic);
            } catch (MQClientException e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
                TimeUnit.MILLISECONDS.sleep(200);
            }
        }
    }

    /** Pulls every queue from its first to its last message and asks for some by id and by key. */
    static void verify(String ns, String topic, boolean exact, boolean keys, Map<String, Entry> want) throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer("interop-verify");
        c.setNamesrvAddr(ns);
        c.start();
        Map<String, String> wrong = new HashMap<>();
        Map<String, Long> seen = new HashMap<>();
        int more = 0;
        Set<MessageQueue> queues = queues(c, topic);
        for (MessageQueue q : queues) {
            long at = c.minOffset(q), end = c.maxOffset(q);
            check(at == 0, q + " begins at " + at);
            while (at < end) {
                PullResult r = c.pull(q, "*", at, 32);
                check(r.getPullStatus() == PullStatus.FOUND, q + " at " + at + " of " + end + ": " + r);
                for (MessageExt m : r.getMsgFoundList()) {
                    check(m.getQueueOffset() == at, q + ": offset " + m.getQueueOffset() + " where " + at + " was expected");
                    at++;
                    Entry e = want.get(key(m));
                    if (e == null && !exact) {
                        more++; // stored, but killed before it was acknowledged
                        continue;
                    }
                    String why = differs(e, m);
                    if (why != null) {
                        wrong.put(key(m), why);
                    }
                    check(seen.put(key(m), at) == null, "key " + key(m) + " twice");
                }
                check(r.getNextBeginOffset() == at, q + ": next offset " + r.getNextBeginOffset() + ", not " + at);
            }
        }
        check(wrong.isEmpty(), "stored messages differ: " + first(wrong));
        for (Entry e : want.values()) {
            check(seen.containsKey(e.key), e.key + " was acknowledged at " + e.queue + "/" + e.offset + " and is not there; found are " + seen.size() + " of " + want.size());
        }
        int asked = 0;
        List<Entry> some = new ArrayList<>(want.values());
        for (int i = 0; i < some.size(); i += Math.max(1, some.size() / 20)) {
            Entry e = some.get(i);
            MessageExt m = c.viewMessage(topic, e.id);
            String why = m == null ? "not found" : differs(e, m);
            check(why == null, e.key + " by its id " + e.id + ": " + why);
            asked++;
            if (!keys) {
                continue;
            }
            QueryResult r = c.queryMessage(topic, "also-" + e.key, 8, 0, System.currentTimeMillis() + 3_600_000);
            check(r.getMessageList().size() == 1, e.key + " by its key: " + r.getMessageList().size() + " found");
            why = differs(e, r.getMessageList().get(0));
            check(why == null, e.key + " by its key: " + why);
        }
        c.shutdown();
        System.out.printf("verified %d of %d in %d queues of %s, each at its offset; %d more were stored; %d by id%s%n",
            seen.size(), want.size(), queues.size(), topic, more, asked, keys ? " and by key" : "");
    }
}
