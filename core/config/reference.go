package config

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

var groupTitles = map[Group]string{
	GroupNode:      "The process",
	GroupNetwork:   "Network",
	GroupBroker:    "Broker",
	GroupTopics:    "Topics and groups",
	GroupConsume:   "Reading",
	GroupStore:     "Store",
	GroupRetention: "Retention",
	GroupMetrics:   "Metrics and traces",
	GroupProcess:   "Plugins as processes",
	GroupNamesrv:   "Name server",
	GroupTLS:       "TLS",
}

const referenceHead = `# Configuration

<!-- Generated from the key table in core/config; change it there and run: go test ./core/config -run Reference -update -->

## Where values come from

Defaults, then a file, then environment variables, then flags; each overrides the one before.
` + "`hardpoint config show`" + ` prints every value and where it came from, ` + "`hardpoint config check FILE`" + ` reports
every fault of a file, and ` + "`hardpoint config explain KEY`" + ` describes a key.

* **File**: ` + "`--config FILE`" + ` or ` + "`HARDPOINT_CONFIG`" + `. The end of the name tells the form: ` + "`.yaml` and `.yml`, `.toml`, or `.conf` and `.properties`" + `
  for RocketMQ's broker.conf and namesrv.conf (there a backslash begins an escape: write Windows paths with / or with two backslashes).
  Each further ` + "`--config FILE`" + ` is [one more broker group](#several-broker-groups-in-one-process).
* **Environment**: the key in capitals with underscores between its words and two for a dot, after ` + "`HARDPOINT_`" + `:
  ` + "`flushDiskType` is `HARDPOINT_FLUSH_DISK_TYPE`" + `.
* **Flags**: those named below, and ` + "`--set KEY=VALUE`" + ` for every key.
* **Plugins**: ` + "`plugins.KIND.NAME.FIELD`" + ` goes to the plugin as it is (in the environment ` + "`HARDPOINT_PLUGINS__STORAGE__PEBBLE__CACHE_BYTES`" + `).
  ` + "`plugins.KIND.NAME.process: true`" + ` runs it as a process of its own. ` + "`hardpoint config explain plugins.KIND.NAME`" + `
  lists the fields of a plugin with their defaults, ` + "`hardpoint plugin list`" + ` the plugins. Where a source has no types, true, false and numbers
  get one; double quotes keep a text.
* **Plugins of your own**: ` + "`plugins.KIND.NAME.path`" + ` names a program that is the plugin NAME; everywhere NAME then means it. A relative path is
  relative to the configuration file. ` + "`checksum`" + ` is the SHA-256 that the program must have, ` + "`args`" + ` is a list of arguments, ` + "`env`" + ` a list of NAME=VALUE
  beside the few variables that it inherits (where a source has no lists: words with blanks between them). All other fields are the plugin's own.
  SIGHUP starts these programs, and those of ` + "`process: true`" + `, anew in place of the old ones, as the file names them and as they are on disk then:
  an upgrade without a stop. A store keeps its process until the broker is started again. [Write a plugin](write-a-plugin.md) makes one.
* **Secrets**: in the fields of a plugin ` + "`${file:PATH}`" + ` stands for the text of a file without its last line break, ` + "`${env:NAME}`" + ` for an
  environment variable, and ` + "`$${`" + ` for a dollar sign and a brace. The broker resolves them when it starts and hands the value to the plugin
  alone: it is in no argument, environment, log or output of ` + "`config show`" + `. What they stand for is always a text.

## Values

Blanks at both ends are removed and those inside are kept; a byte-order mark and CRLF are accepted. A size is plain bytes or has one of the units
KiB, MiB, GiB, TiB (1024 each). A duration is a plain number in the unit that the table names, or has one of ms, s, m, h, d. A bool is true or false.

An unknown key, a key given twice, a value outside its range, and text that is not UTF-8 are errors with file and line; all are reported at once.
A key of RocketMQ that has no effect here is accepted with a warning; one whose loss would weaken security or durability is refused, unless
its value asks for nothing. *Live* marks keys that may change while the process runs.

Some keys of RocketMQ set a part of another one: listenPort and bindAddress of listen, brokerIP1 of advertise. A part overrides when it
comes from a later layer than the whole; in one layer the two must agree. In namesrv.conf listenPort and bindAddress mean namesrvListen.

## Several broker groups in one process

` + "`hardpoint broker --config a.conf --config b.conf`" + ` runs one broker group for each file, each with ports, data directory, store, replicator, transports,
allocators and plugin processes of its own; ` + "`hardpoint standalone`" + ` does with a name server beside them, which takes its transport and limits from the
first file and keeps its own files in that one's data directory. Environment and flags hold for all groups.
Each file names a brokerName, a listen port (the VIP channel has the one two below) and a data directory that no other has; what two of them share is an error
with both places, before anything opens. ` + "`hardpoint config check a.conf b.conf`" + ` checks the files together.

Of adminListen, drainTimeout, logLevel, logFormat and what else is about the process, and of the name server's keys, there is one value: it counts for all
groups wherever it is set, and two files that set it differently are refused. ` + "`hardpoint config explain KEY`" + ` says which keys these are. logLevel stays the
process's when a request to one group changes it; every other key that a request changes is that group's alone.
`

// WriteReference writes docs/configuration.md: every key, from the key table.
func WriteReference(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString(referenceHead)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| Key | Type | Default | Allowed | For | Flag | Live | Meaning |\n|---|---|---|---|---|---|---|---|\n", groupTitles[g])
		for _, k := range keyTable().keys {
			if k.Group == g && k.Status == Honoured {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", keyCell(k), typeCell(k), code(k.Default), allowedCell(k),
					appliesCell(k.Applies), flagCell(k.Flag), yes(k.Reloadable), cell(descText(k)))
			}
		}
	}
	b.WriteString("\n## Refused\n\nAn empty value and those named as harmless are accepted.\n\n| Key | Type | Harmless | Meaning | Reason |\n|---|---|---|---|---|\n")
	for _, k := range keyTable().keys {
		if k.Status == Refused {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", keyCell(k), typeCell(k), code(strings.Join(k.Harmless, ", ")), cell(k.Desc), cell(k.Reason))
		}
	}
	b.WriteString("\n## RocketMQ's keys without effect\n\nAccepted with a warning. The default is RocketMQ's.\n")
	for _, g := range groups {
		head := false
		for _, k := range keyTable().keys {
			if k.Group != g || k.Status != Ignored {
				continue
			}
			if !head {
				fmt.Fprintf(&b, "\n### %s\n\n| Key | Type | Default | Meaning | Reason |\n|---|---|---|---|---|\n", groupTitles[g])
				head = true
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", keyCell(k), typeCell(k), code(k.Default), cell(k.Desc), cell(k.Reason))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Describe is the text of `config explain KEY`: everything that the table
// knows, one fact a line.
func (k Key) Describe() string {
	var b strings.Builder
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-12s %s\n", label, text)
		}
	}
	fmt.Fprintf(&b, "%s\n%s\n", k.Name, descText(k))
	status := k.Status.String()
	if k.Reason != "" {
		status += ": " + k.Reason
	}
	line("status", status)
	line("allowed", k.AllowedText())
	line("default", k.Default)
	line("harmless", strings.Join(k.Harmless, ", "))
	line("for", appliesCell(k.Applies))
	line("also", strings.Join(k.Aliases, ", "))
	line("sets part of", k.Sets)
	line("environment", k.Env())
	if k.Flag != "" {
		line("flag", "--"+k.Flag)
	}
	line("flag", "--set "+k.Name+"=VALUE")
	if k.Reloadable {
		line("live", "may change while the process runs")
	}
	if k.WholeProcess(Broker) {
		line("groups", "one value for all broker groups of a process")
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func keyCell(k Key) string {
	s := "`" + k.Name + "`"
	for _, a := range k.Aliases {
		s += "<br>also `" + a + "`"
	}
	return s
}

func typeCell(k Key) string {
	if k.Unit != "" {
		return k.Type.String() + ", " + k.Unit
	}
	return k.Type.String()
}

func allowedCell(k Key) string {
	switch k.Type {
	case Enum:
		return cell(orList(k.Words))
	case Int, Size, Duration:
		if len(k.Words) > 0 {
			return orList(k.Words)
		}
		return strings.TrimSpace(k.rangeText())
	default:
		return ""
	}
}

func appliesCell(m Mode) string {
	if m == Standalone {
		return "both"
	}
	return m.String()
}

func flagCell(f string) string {
	if f == "" {
		return ""
	}
	return "`--" + f + "`"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func descText(k Key) string {
	s := k.Desc
	if len(k.Plugins) > 0 {
		s += " Goes to " + orList(k.Plugins) + "."
	}
	for _, w := range k.Words {
		if reason, ok := k.Refuses[w]; ok {
			s += " " + w + " is refused: " + reason + "."
		}
	}
	if reason, ok := k.Refuses["false"]; ok {
		s += " false is refused: " + reason + "."
	}
	return s
}
