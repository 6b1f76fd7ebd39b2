package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestLayers follows imports to their end: what a package reaches, not only what
// it names.
func TestLayers(t *testing.T) {
	pkgs := list(t)
	report(t, checkLayers(pkgs))
	report(t, checkTestPackages(pkgs))
}

func TestSources(t *testing.T) {
	sources := parseAll(t)
	for _, s := range sources {
		report(t, checkSize(s))
		report(t, checkInit(s))
		report(t, checkSleep(s))
		report(t, checkEmbedding(s))
		report(t, checkSkip(s))
		report(t, checkFields(s))
		report(t, checkCorpus(s, func(dir string) bool {
			inputs, err := os.ReadDir(filepath.Join(root, dir))
			return err == nil && len(inputs) > 0
		}))
	}
	report(t, checkPackages(sources))
}

func TestTexts(t *testing.T) {
	walk(t, func(path string) {
		info, err := os.Stat(filepath.Join(root, path))
		require.NoError(t, err)
		if info.Size() > 1<<20 {
			return // recorded data
		}
		content, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		report(t, checkText(path, content))
	})
}

func TestNoBuiltPrograms(t *testing.T) {
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".test") { // what `go test -c` and profiles leave is ignored by git
			return
		}
		f, err := os.Open(filepath.Join(root, path))
		require.NoError(t, err)
		defer f.Close()
		start := make([]byte, 4)
		n, err := io.ReadFull(f, start)
		if n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			require.NoError(t, err)
		}
		report(t, checkProgram(path, start[:n]))
	})
}

func TestDocs(t *testing.T) {
	read := func(name string) (string, error) {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.IsDir() {
			return "", err
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		return string(b), err
	}
	snippets := 0
	walk(t, func(path string) {
		if filepath.Ext(path) != ".md" {
			return
		}
		text, err := read(path)
		require.NoError(t, err)
		snippets += len(snippet.FindAllString(text, -1))
		report(t, checkDoc(path, text, read))
	})
	require.Positive(t, snippets, "has the mark of a snippet changed?")
}

func TestDocRulesFind(t *testing.T) {
	read := func(name string) (string, error) {
		if name == "docs/a.go" {
			return "package a\n\nfunc A() {}\n", nil
		}
		return "", os.ErrNotExist
	}
	const mark = "<!-- code of docs/a.go -->\n```go\n"
	require.Empty(t, checkDoc("docs/a.md", "[a](a.go) [b](https://example.com/x) [c](#c)\n"+mark+"package b\n\nfunc A() {}\n```\n", read))
	expect(t, checkDoc("docs/a.md", "see [b](b.go#L1)", read), "docs/a.md links to b.go#L1")
	expect(t, checkDoc("docs/a.md", mark+"func B() {}\n```\n", read), `not there word for word, from "func B() {}" on`)
	expect(t, checkDoc("docs/a.md", "<!-- code of b.go -->\n```go\nfunc A() {}\n```\n", read), "shows code of b.go")
}

func TestLayersFind(t *testing.T) {
	std := pkg{ImportPath: "fmt", Standard: true}
	one := func(rel string, deps ...string) []pkg {
		return []pkg{std, {ImportPath: module + "/" + rel, Imports: deps, Deps: deps}}
	}
	for name, tc := range map[string]struct {
		pkgs []pkg
		want string // "": clean
	}{
		"contract, standard library":  {one("core/message", "fmt"), ""},
		"contract, another module":    {one("core/message", "example.org/x"), "example.org/x"},
		"contract, plugin":            {one("core/storage", module+"/plugins/storage/memory"), "plugins/storage/memory"},
		"contract to contract":        {one("core/transport", module+"/core/replication"), "names another"},
		"replication may name store":  {one("core/replication", module+"/core/storage"), ""},
		"plugin and fx":               {one("plugins/storage/pebble", fx), fx},
		"plugin and gRPC below":       {one("plugins/storage/pebble", grpc+"/codes"), grpc},
		"gRPC transport":              {one("plugins/transport/grpc", grpc), ""},
		"plugin and another plugin":   {one("plugins/replication/solo", module+"/plugins/storage/memory"), "do not know each other"},
		"package inside a plugin":     {one("plugins/storage/commitlog", module+"/plugins/storage/commitlog/internal/x"), ""},
		"the list of plugins":         {one("plugins/standard", fx, module+"/plugins/storage/memory"), ""},
		"engine and gRPC":             {one("core/broker", grpc), grpc},
		"engine's module and fx":      {one("core/broker", fx), ""},
		"behaviour and fx":            {one("core/internal/send", fx), fx},
		"wire and engine":             {one("sdk/wire", module+"/core/broker"), "core/broker"},
		"embedded and engine":         {one("sdk/embedded", module+"/core/broker"), ""},
		"client, default transport":   {one("sdk/client", module+"/plugins/transport/remoting"), ""},
		"client, store":               {one("sdk/client", module+"/plugins/storage/memory"), "plugins/storage/memory"},
		"name that only begins alike": {one("core/messages", "example.org/x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkLayers(tc.pkgs), tc.want)
		})
	}
}

func TestTestPackagesFind(t *testing.T) {
	for name, tc := range map[string]struct {
		of   string
		deps []string
		want string
	}{
		"suite in a program":       {"cmd/hardpoint", []string{module + "/core/vfs/vfstest"}, "cmd/hardpoint reaches core/vfs/vfstest"},
		"assertions":               {"sdk/embedded", []string{"github.com/stretchr/testify/require"}, "testify"},
		"testing":                  {"sdk/embedded", []string{"testing/iotest"}, "names testing/iotest"},
		"suite in a suite":         {"core/storage/storagetest", []string{"testing", module + "/core/vfs/vfstest"}, ""},
		"name that ends otherwise": {"sdk/embedded", []string{module + "/core/tester", "example.org/vfstest"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkTestPackages([]pkg{{ImportPath: module + "/" + tc.of, Imports: tc.deps, Deps: tc.deps}}), tc.want)
		})
	}
	indirect := []pkg{
		{ImportPath: module + "/cmd/hardpoint", Imports: []string{"example.org/x"}, Deps: []string{"example.org/x", "testing"}},
		{ImportPath: "example.org/x", Imports: []string{"testing"}, Deps: []string{"testing"}},
	}
	require.Empty(t, checkTestPackages(indirect), "package testing through somebody else")
}

func TestLayersNameTheRoute(t *testing.T) {
	pkgs := []pkg{
		{ImportPath: module + "/core/broker", Imports: []string{module + "/internal/helper"}, Deps: []string{module + "/internal/helper", grpc}},
		{ImportPath: module + "/internal/helper", Imports: []string{grpc}, Deps: []string{grpc}},
	}
	found := checkLayers(pkgs)
	require.Len(t, found, 1)
	require.Contains(t, found[0], module+"/core/broker -> "+module+"/internal/helper -> "+grpc)
}

func TestSourceRulesFind(t *testing.T) {
	const storageImport = `import "` + module + `/core/storage"`
	for name, tc := range map[string]struct {
		path, src string
		check     func(source) []string
		want      string
	}{
		"long":               {"a/a.go", "package a\n" + strings.Repeat("\n", maxLines), checkSize, "split it"},
		"long test":          {"a/a_test.go", "package a\n" + strings.Repeat("\n", maxLines), checkSize, ""},
		"long generated":     {"a/a.go", "// Code generated by x. DO NOT EDIT.\npackage a\n" + strings.Repeat("\n", maxLines), checkSize, ""},
		"init":               {"a/a.go", "package a\nfunc init() {}", checkInit, "a/a.go:2 declares init()"},
		"method init":        {"a/a.go", "package a\ntype t int\nfunc (t) init() {}", checkInit, ""},
		"sleep":              {"a/a_test.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }", checkSleep, "a/a_test.go:3 sleeps"},
		"sleep under a name": {"a/a.go", "package a\nimport clock \"time\"\nvar f = clock.Sleep", checkSleep, "sleeps"},
		"another Sleep":      {"a/a.go", "package a\nimport \"x/time\"\nfunc f() { time.Sleep(1) }", checkSleep, ""},
		"skip":               {"a/a_test.go", "package a\nfunc TestA(t *testing.T) { t.Skipf(x) }", checkSkip, "a/a_test.go:2 leaves a test out"},
		"skip of a helper":   {"a/a_test.go", "package a\nfunc f(tb testing.TB) { if x { tb.SkipNow() } }", checkSkip, "leaves a test out"},
		"skip of a suite":    {"core/x/xtest/a.go", "package xtest\nfunc f(t *testing.T) { t.Skip() }", checkSkip, ""},
		"skip of an input":   {"a/a_test.go", "package a\nfunc FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T) { t.Skip() }) }", checkSkip, ""},
		"skip of a step":     {"a/a_test.go", "package a\nfunc (m *machine) Step(t *rapid.T) { t.Skip() }", checkSkip, ""},
		"race and Alloc":     {"a/a_test.go", "package a\nfunc TestAlloc(t *testing.T) { if raceEnabled { t.Skip() } }", checkSkip, ""},
		"race and no Alloc":  {"a/a_test.go", "package a\nfunc TestA(t *testing.T) { if raceEnabled { t.Skip() } }", checkSkip, "put Alloc in it"},
		"another Skip":       {"a/a.go", "package a\nfunc f(r reader) { r.Skip(3) }", checkSkip, ""},
		"many fields":        {"a/a.go", "package a\ntype a struct {\n x.B\n" + strings.Repeat("c, d int\n", 13) + "}", checkFields, "a/a.go:2: a has 27 fields"},
		"fields in parts":    {"a/a.go", "package a\ntype a struct {\n b struct{" + strings.Repeat("c, d int\n", 12) + "}\n" + strings.Repeat("c int\n", 24) + "}", checkFields, ""},
		"decorator embeds":   {"core/storage/storagemw/m.go", "package storagemw\n" + storageImport + "\ntype metrics struct { storage.Store }", checkEmbedding, "unwrapped"},
		"base embeds":        {"core/storage/storagemw/base.go", "package storagemw\n" + storageImport + "\ntype Base struct { storage.Store }", checkEmbedding, ""},
		"a Base elsewhere":   {"core/x/base.go", "package x\n" + storageImport + "\ntype Base struct { storage.Store }", checkEmbedding, "unwrapped"},
		"named field":        {"core/x/x.go", "package x\n" + storageImport + "\ntype x struct { store storage.Store }", checkEmbedding, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, tc.check(parse(t, tc.path, tc.src)), tc.want)
		})
	}
}

func TestCorpusRuleFinds(t *testing.T) {
	s := parse(t, "a/a_test.go", "package a\nfunc FuzzA(f *testing.F) {}")
	expect(t, checkCorpus(s, func(dir string) bool { return dir == "a/testdata/fuzz/FuzzA" }), "")
	expect(t, checkCorpus(s, func(string) bool { return false }), "a/a_test.go:2: FuzzA has no corpus")
}

func TestPackageRulesFind(t *testing.T) {
	starts := "// Package a does.\npackage a\nfunc f() { go f() }"
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no comment":             {map[string]string{"a/a.go": "package a"}, "no package comment"},
		"comment":                {map[string]string{"a/a.go": "// Package a does.\npackage a"}, ""},
		"goroutine without look": {map[string]string{"a/a.go": starts, "a/a_test.go": "package a"}, "goleak"},
		"goroutine with look":    {map[string]string{"a/a.go": starts, "a/a_test.go": "package a\nimport \"go.uber.org/goleak\""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []source
			for path, src := range tc.files {
				sources = append(sources, parse(t, path, src))
			}
			expect(t, checkPackages(sources), tc.want)
		})
	}
}

func TestTextRulesFind(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unfinished":    {"a\n// TO" + "DO: later", "x:2 says"},
		"inside a word": {"MASTO" + "DONS", ""},
		"path":          {"see /wor" + "k/main", "of one machine"},
		"path as part":  {"docs/wor" + "k/x", ""},
		"binary":        {"\x00 /wor" + "k/main", ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkText("x", []byte(tc.text)), tc.want)
		})
	}
}

func TestProgramRuleFinds(t *testing.T) {
	expect(t, checkProgram("x", []byte("\x7fELF\x02")), "built program")
	expect(t, checkProgram("x", []byte("#!/b")), "")
}

func expect(t *testing.T, found []string, want string) {
	t.Helper()
	if want == "" {
		require.Empty(t, found)
		return
	}
	require.NotEmpty(t, found)
	require.Contains(t, found[0], want)
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

// list asks the go command for every package of the main module and what it
// reaches. Tests are not followed: they may use what they like.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", &stderr)
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		pkgs = append(pkgs, p)
	}
	require.NotEmpty(t, pkgs)
	return pkgs
}

func parse(t *testing.T, path, src string) source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	return source{path: path, fset: fset, file: f}
}

func parseAll(t *testing.T) []source {
	t.Helper()
	var sources []source
	walk(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata/") {
			return
		}
		src, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		sources = append(sources, parse(t, path, string(src)))
	})
	require.NotEmpty(t, sources)
	return sources
}

// walk visits every file of the repository that somebody wrote.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			switch {
			case rel == "bin", rel == "data", rel == "store", d.Name() == ".git", d.Name() == "node_modules", d.Name() == "target":
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() && rel != ".git" { // a file in a work tree of git
			visit(rel)
		}
		return nil
	})
	require.NoError(t, err)
}
