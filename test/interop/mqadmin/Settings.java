import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;

/**
 * Compares what brokers or name servers tell of themselves, key by key: every difference is listed in the file
 * differences, and every line there is one. See its head.
 */
final class Settings {
    /** A line of the file. */
    private static final class Rule {
        final String how;
        final Pattern key;
        final String[] values;
        final String text;
        boolean used;

        Rule(String how, String key, String text, String... values) {
            this.how = how;
            this.key = glob(key);
            this.values = values;
            this.text = text;
        }

        static Pattern glob(String text) {
            return Pattern.compile("\\Q" + text.replace("*", "\\E.*\\Q") + "\\E");
        }

        /** Reports whether the values, null where a side has no such key, differ as this line says. */
        boolean allows(String apache, String hardpoint) {
            switch (how) {
                case "there":
                    return hardpoint == null;
                case "here":
                    return apache == null;
                case "form":
                    return apache != null && hardpoint != null && form(apache).equals(form(hardpoint));
                case "value":
                    return apache != null && hardpoint != null && is(0, apache) && is(1, hardpoint);
                default:
                    throw new IllegalArgumentException("in the file differences: " + text);
            }
        }

        private boolean is(int side, String value) {
            return glob(values[side].equals("-") ? "" : values[side]).matcher(value).matches();
        }

        /** Numbers are left out, however many follow each other. */
        private static String form(String value) {
            return value.replaceAll("-?\\d+(\\.\\d+)?(E-?\\d+)?", "N").replaceAll("N( N)+", "N").trim();
        }
    }

    /** Says what is not as the file has it; empty: nothing. */
    static String compare(String kind, Path file, String[] got) throws Exception {
        List<Rule> rules = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            String[] word = line.replaceAll("#.*", "").trim().split("\\s+");
            if (word[0].equals(kind)) {
                if (word[1].equals("value")) {
                    rules.add(new Rule(word[1], word[2], line, word[3], word[4]));
                }
                for (int i = 2; !word[1].equals("value") && i < word.length; i++) {
                    rules.add(new Rule(word[1], word[i], kind + " " + word[1] + " " + word[i]));
                }
            }
        }
        Map<String, String> apache = parse(got[0]), hardpoint = parse(got[1]);
        StringBuilder wrong = new StringBuilder();
        if (apache.size() < 10 || !got[0].contains("exit 0") || !got[1].contains("exit 0")) {
            wrong.append("  no settings: ").append(got[0], 0, Math.min(got[0].length(), 300)).append('\n');
        }
        TreeSet<String> keys = new TreeSet<>(apache.keySet());
        keys.addAll(hardpoint.keySet());
        for (String key : keys) {
            String a = apache.get(key), h = hardpoint.get(key);
            boolean allowed = a != null && a.equals(h);
            for (Rule r : rules) {
                if (r.key.matcher(key).matches() && r.allows(a, h)) {
                    r.used = true;
                    allowed = true;
                }
            }
            if (!allowed) {
                wrong.append(String.format("  %s: apache %s, hardpoint %s%n", key, a == null ? "does not have it" : a, h == null ? "does not have it" : h));
            }
        }
        for (Rule r : rules) {
            if (!r.used) {
                wrong.append("  no such difference any more: ").append(r.text).append('\n');
            }
        }
        return wrong.toString();
    }

    private static Map<String, String> parse(String text) {
        Map<String, String> all = new TreeMap<>();
        for (String line : text.split("\n")) {
            String[] part = line.split(" *= {1,2}| *: ", 2);
            if (part.length == 2 && !part[0].contains(" ") && !part[0].startsWith("=")) {
                all.put(part[0].replaceAll("_/.*/", "_.../"), part[1].trim());
            }
        }
        return all;
    }

    private Settings() {
    }
}
