package main

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestExitCodes: 2 whenever the command line has to be changed, and then it says where
// help is; 1 when it may be right and files, the environment or the network are not.
func TestExitCodes(t *testing.T) {
	t.Setenv("HARDPOINT_CONFIG", "")
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"":                  {exitOK, ""},
		"help plugin new":   {exitOK, ""},
		"completion bash":   {exitOK, ""},
		"standalon":         {exitUsage, `unknown command "standalon" for "hardpoint"; did you mean standalone?`},
		"consumerProgress":  {exitUsage, "what mqadmin calls consumerProgress is here: hardpoint offset show, hardpoint offset list, hardpoint group explain"},
		"mqadmin topiclist": {exitUsage, "what mqadmin calls topicList is here: hardpoint topic list"},
		"mqadmin":           {exitUsage, "docs/cli.md"},
		"mqadmin nothing":   {exitUsage, `unknown command "mqadmin"`},
		"sendMessage -t Orders -p hello -n 127.0.0.1:9876": {exitUsage, "what mqadmin calls sendMessage is here: hardpoint bench produce --topic TOPIC --count 1"},
		"mqadmin updateTopic -n 127.0.0.1:9876 -t Orders":  {exitUsage, "what mqadmin calls updateTopic is here: hardpoint topic create"},
		"topic updateTopic -t Orders":                      {exitUsage, "what mqadmin calls updateTopic is here: hardpoint topic create"},
		"message sendMessage":                              {exitUsage, "what mqadmin calls sendMessage is here"},
		"message send --topic Orders":                      {exitUsage, `unknown command "send" for "hardpoint message"; what mqadmin calls sendMessage`},
		"message send --help":                              {exitUsage, `unknown command "send"`},
		"help message send":                                {exitUsage, `unknown command "send"`},
		"broker stauts --broker b":                         {exitUsage, "did you mean status?"},
		"nothing --help":                                   {exitUsage, `unknown command "nothing"`},
		"message --help":                                   {exitOK, ""},
		"bench prodcue":                                    {exitUsage, "did you mean produce?"},
		"help nothing":                                     {exitUsage, `unknown command "nothing"`},
		"completion tcsh":                                  {exitUsage, `unknown command "tcsh"`},
		"health --timeout 0s":                              {exitUsage, "a time above zero"},
		"topic list --timeout 0s":                          {exitUsage, "a time above zero"},
		"topic list --timeout -1s":                         {exitUsage, "a time above zero"},
		"plugin check --timeout 0s /no/such/file":          {exitUsage, "a time above zero"},
		"health now":                                       {exitUsage, `takes no arguments; "now" was given`},
		"man":                                              {exitUsage, "needs exactly DIR"},
		"version now":                                      {exitUsage, `takes no arguments; "now" was given`},
		"version --output xml":                             {exitUsage, "must be text or json"},
		"standalone --nonsense":                            {exitUsage, "unknown flag"},
		"standalone --set foo":                             {exitUsage, "write --set KEY=VALUE"},
		"standalone --set foo=1":                           {exitUsage, `unknown key "foo"`},
		"standalone --listen nowhere":                      {exitUsage, "flag --listen"},
		"standalone --storage no --listen :1":              {exitUsage, `there is no storage plugin "no"`},
		"config show --set maxMessageSize=4XB":             {exitUsage, "4MiB"},
		"config show --config no.yaml":                     {exitFailure, "it does not exist"},
		"config check no.yaml":                             {exitFailure, ""},
		"config explain flushDiskTyp":                      {exitUsage, "did you mean flushDiskType"},
		"config explain a b":                               {exitUsage, "takes one KEY at most"},
		"config explain plugins.storage":                   {exitUsage, "write plugins.KIND.NAME"},
		"config explain plugins.storage.No":                {exitUsage, "not a plugin's name"},
		"plugin new storage Bad":                           {exitUsage, "lower case letters"},
		"plugin new transport mine --lang python":          {exitUsage, "allocate and storage plugins only"},
		"plugin new stroage mine":                          {exitUsage, "known are allocate"},
		"plugin new storage mine --lang rust":              {exitUsage, "must be go or python"},
		"plugin serve storage no":                          {exitUsage, `no storage plugin "no"`},
		"plugin serve storage memory":                      {exitFailure, "plugins.KIND.NAME.path"},
		"plugin check":                                     {exitUsage, "needs FILE"},
		"plugin check /no/such/file":                       {exitFailure, ""},
		"plugin bench no":                                  {exitUsage, "no store and no allocator"},
		"plugin bench circle --kind transport":             {exitUsage, "must be storage or allocate"},
		"plugin bench circle --duration 0s":                {exitUsage, "more than nothing"},
		"plugin bench circle --queues -1":                  {exitUsage, "at least 1 of each"},
		"bench produce":                                    {exitUsage, "say which broker"},
		"bench produce --broker b:1 --size -1":             {exitUsage, "size is -1 bytes"},
		"bench produce --broker b:1 --size 1XB":            {exitUsage, "4MiB"},
		"bench produce --broker b:1 --warmup 2":            {exitUsage, "a time with its unit"},
		"bench produce --broker b:1 --header x":            {exitUsage, "must be json or rocketmq"},
		"bench consume --broker b:1 --verify --count 1":    {exitUsage, "verify reads"},
		"bench e2e --broker b:1 --size 1":                  {exitUsage, "time stamp"},
		"bench produce --broker 127.0.0.1:1":               {exitFailure, "nothing answers"},
		"store verify":                                     {exitUsage, "needs exactly DIR"},
		"store inspect /no/such/store":                     {exitFailure, "does not exist"},
		"store repair --yes --dry-run a":                   {exitUsage, "dry-run"},
		"group assign g t":                                 {exitUsage, "there is nothing to set"},
		"group assign --dry-run g t --members no":          {exitFailure, "no"},
		"group assign --dry-run g t --broker 127.0.0.1:1":  {exitFailure, "127.0.0.1:1"},
		"group assign --dry-run g t --namesrv n":           {exitUsage, "namesrv"},
		"topic create":                                     {exitUsage, "needs exactly TOPIC"},
		"topic create a/b --broker 127.0.0.1:1":            {exitUsage, `holds "/"`},
		"topic update t --broker 127.0.0.1:1":              {exitUsage, "there is nothing to change"},
		"topic update t --perm X":                          {exitUsage, "must be R, W, RW or none"},
		"topic list --broker 127.0.0.1:1":                  {exitFailure, "connecting to 127.0.0.1:1"},
		"topic list --namesrv nowhere":                     {exitUsage, "write HOST:PORT"},
		"topic list --namesrv a:x":                         {exitUsage, "write HOST:PORT"},
		"topic list --namesrv a:70000":                     {exitUsage, "with a port from 1 to 65535"},
		"topic list --broker a:x":                          {exitUsage, "write HOST:PORT"},
		"bench produce --namesrv a:x":                      {exitUsage, "write HOST:PORT"},
		"bench produce --broker a:0":                       {exitUsage, "write HOST:PORT"},
		"bench consume --broker a":                         {exitUsage, "write HOST:PORT"},
		"bench watch --namesrv a:x":                        {exitUsage, "write HOST:PORT"},
		"topic list --timeout 3":                           {exitUsage, "a time with its unit"},
		"topic delete t --yes --dry-run":                   {exitUsage, "dry-run"},
		"topic lsit":                                       {exitUsage, "did you mean list?"},
		"group reset g t":                                  {exitUsage, "say where to"},
		"group reset g t --offset 1":                       {exitUsage, "say which one with --queue"},
		"group reset g t --to noon":                        {exitUsage, "allowed are earliest, latest"},
		"group reset g t --to latest --broker 127.0.0.1:1": {exitFailure, "connecting to 127.0.0.1:1"},
		"group explain":                                    {exitUsage, "needs exactly GROUP"},
		"offset show":                                      {exitUsage, "needs GROUP"},
		"offset search t":                                  {exitUsage, "time"},
		"broker stauts":                                    {exitUsage, "did you mean status?"},
		"broker config set traceOn=1":                      {exitUsage, "--broker or --cluster"},
		"broker config set --broker a":                     {exitUsage, "at least one KEY=VALUE"},
		"broker wipe-write-perm":                           {exitUsage, "needs exactly BROKER"},
		"cluster stats a b":                                {exitUsage, "takes one TOPIC at most"},
		"cluster list --namesrv 127.0.0.1:1":               {exitFailure, "no name server answers"},
		"message query --topic T":                          {exitUsage, "say which messages"},
		"message query --topic T --from x":                 {exitUsage, "how long ago as -2h"},
		"message query --id x":                             {exitUsage, "taken for a unique key"},
		"doctor --namesrv x":                               {exitUsage, "write HOST:PORT"},
		"doctor --namesrv 127.0.0.1:1":                     {exitFailure, ""},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(line), strings.NewReader(""), &out, &errs)
		require.Equal(t, want.code, code, "hardpoint %s\n%s%s", line, &out, &errs)
		require.Contains(t, errs.String(), want.says, "hardpoint %s", line)
		require.Equal(t, code == exitUsage, strings.Contains(errs.String(), "--help' for usage."), "hardpoint %s: %s", line, &errs)
	}
}

// TestCompletion: what has only some words, or names a plugin, is completed.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"plugin bench":                "sticky",
		"plugin bench --form":         "in-process",
		"plugin bench --kind":         "allocate",
		"plugin new storage x --lang": "python",
		"standalone --storage":        "pebble",
		"standalone --log-level":      "debug",
		"config show --log-format":    "json",
		"bench produce --header":      "rocketmq",
		"bench consume --from":        "end",
		"version -o":                  "json",
		"help plugin":                 "serve",
		"help store":                  "seal",
		"store inspect d -o":          "json",
		"group assign --allocator":    "zone",
		"group reset g t --to":        "earliest",
		"topic create t --perm":       "RW",
		"message query --body":        "base64",
		"broker config":               "set",
		"cluster":                     "stats",
	} {
		var out bytes.Buffer
		args := append(append([]string{"__complete"}, strings.Fields(line)...), "")
		require.Equal(t, exitOK, run(t.Context(), args, strings.NewReader(""), &out, &out))
		require.Contains(t, strings.Fields(out.String()), want, line)
	}
}

// TestEveryToolHasJSON: what asks brokers or looks at stores is made for programs, too.
func TestEveryToolHasJSON(t *testing.T) {
	n := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() {
			return
		}
		f := c.Flag("output")
		require.NotNil(t, f, c.CommandPath())
		require.Equal(t, "text", f.DefValue, c.CommandPath())
		n++
	}
	for _, c := range (&program{strings.NewReader(""), io.Discard, io.Discard}).commands().Commands() {
		switch c.Name() {
		case "cluster", "broker", "topic", "group", "offset", "message", "doctor", "store":
			walk(c)
		}
	}
	require.Greater(t, n, 30)
}

// TestTimesInLogs: a time in a log has its unit.
func TestTimesInLogs(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		newLogger(&out, new(slog.LevelVar), format).Info("ended", "after", 184*time.Millisecond)
		require.Contains(t, out.String(), "184ms", format)
	}
}

// TestNoDefaults: help does not call a default what is left as it is.
func TestNoDefaults(t *testing.T) {
	for line, hidden := range map[string]bool{"topic create": false, "topic update": true, "group create": false, "group update": true} {
		var out bytes.Buffer
		require.Equal(t, exitOK, run(t.Context(), append(strings.Fields(line), "--help"), nil, &out, &out))
		own := strings.ReplaceAll(out.String(), "(default text)", "")
		own = strings.ReplaceAll(own, "(default 5s)", "")
		require.Equal(t, hidden, !strings.Contains(own, "(default"), own)
		require.NotContains(t, own, "[]")
	}
}
