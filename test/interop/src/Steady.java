import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends while brokers are restarted. Nothing is tried again, so each failure is one of a broker. */
final class Steady {
    private static final int THREADS = 8;

    private Steady() {}

    /** Sends rate messages per second until the file stop is there, every second one without waiting. */
    static void send(String ns, String topic, int rate, Path stop, Path manifest) throws Exception {
        DefaultMQProducer p = Interop.producer(ns);
        p.setRetryTimesWhenSendFailed(0);
        p.setRetryTimesWhenSendAsyncFailed(0);
        AtomicInteger next = new AtomicInteger(), acked = new AtomicInteger(), open = new AtomicInteger();
        ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
        String name = manifest.getFileName().toString();
        long began = System.nanoTime();
        try (BufferedWriter out = Files.newBufferedWriter(manifest)) {
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < THREADS; t++) {
                Thread thread = new Thread(() -> {
                    while (!Files.exists(stop)) {
                        int i = next.getAndIncrement();
                        long due = began + TimeUnit.SECONDS.toNanos(i) / rate, early = due - System.nanoTime();
                        Message m = Interop.message(topic, name + "-" + i, 2 + i % 8, new Random(i));
                        byte[] body = m.getBody();
                        SendCallback done = new SendCallback() {
                            @Override
                            public void onSuccess(SendResult r) {
                                try {
                                    m.setBody(body);
                                    String line = Interop.entry(m, r, r.getOffsetMsgId(), 0).line() + "\n";
                                    synchronized (out) {
                                        out.write(line);
                                    }
                                    acked.incrementAndGet();
                                } catch (Exception e) {
                                    failures.add(i + ": " + e);
                                }
                                open.decrementAndGet();
                            }

                            @Override
                            public void onException(Throwable e) {
                                failures.add(i + " at " + TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began) + " s: " + e);
                                open.decrementAndGet();
                            }
                        };
                        open.incrementAndGet();
                        try {
                            if (early > 0) {
                                TimeUnit.NANOSECONDS.sleep(early);
                            }
                            if (i % 2 == 0) {
                                done.onSuccess(p.send(m, 10_000));
                            } else {
                                p.send(m, done, 10_000);
                            }
                        } catch (Exception e) {
                            done.onException(e);
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread t : threads) {
                t.join();
            }
            for (int i = 0; open.get() > 0 && i < 300; i++) {
                TimeUnit.MILLISECONDS.sleep(100);
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        p.shutdown();
        Interop.check(open.get() == 0, open + " sends without an answer");
        Interop.check(failures.isEmpty(), failures.size() + " of " + next + " sends failed, the first " + failures.peek());
        System.out.printf("sent %d to %s in %.0f s, %.0f a second: %d acknowledged, 0 failed%n", next.get(), topic, seconds, acked.get() / seconds, acked.get());
    }
}
