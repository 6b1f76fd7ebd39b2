package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testsOf is the text of the tests of a package.
func testsOf(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*_test.go"))
	if err != nil || len(files) == 0 {
		return "", os.ErrNotExist
	}
	var b strings.Builder
	for _, f := range append(files, filepath.Join(root, "test", "harness", "node.go")) { // which names stores
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	return b.String(), nil
}

// Tests that a document names are there.
func TestNamedTests(t *testing.T) {
	names := 0
	walk(t, func(path string) {
		if filepath.Ext(path) != ".md" {
			return
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		names += len(named.FindAllString(string(b), -1))
		report(t, checkNamed(path, string(b), testsOf))
	})
	require.Greater(t, names, 20, "has the form of a name changed?")
}

// Whatever an acknowledgement is said to survive is shown by a test, for every store.
func TestDurability(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "durability.md"))
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Join(root, "plugins", "storage"))
	require.NoError(t, err)
	var stores []string
	for _, e := range entries {
		stores = append(stores, e.Name())
	}
	require.Contains(t, stores, "commitlog")
	report(t, checkDurability(strings.ReplaceAll(string(b), "\r\n", "\n"), stores))
}

func TestNamedRulesFind(t *testing.T) {
	tests := func(dir string) (string, error) {
		if dir == "a/b" {
			return "func TestX(t *testing.T) { t.Run(\"one_two\") }", nil
		}
		return "", os.ErrNotExist
	}
	require.Empty(t, checkNamed("a.md", "`a/b: TestX/one_two` and `a/b: TestX`", tests))
	expect(t, checkNamed("a.md", "`a/c: TestX`", tests), "a.md names a test of a/c")
	expect(t, checkNamed("a.md", "`a/b: TestY`", tests), "has no such test")
	expect(t, checkNamed("a.md", "`a/b: TestX/one`", tests), "nothing is called one")

	const row = "| s | in process | both | all<br>`a/b: TestX` | — | all `a/b: TestX` |\n| s | process | both | `a/b: TestX` | `a/b: TestX` | `a/b: TestX` |\n"
	require.Empty(t, checkDurability(row, []string{"s"}))
	expect(t, checkDurability(row, []string{"s", "t"}), "no row for t, in process, ASYNC_FLUSH")
	expect(t, checkDurability(strings.Replace(row, "`a/b: TestX`", "yes", 1), []string{"s"}), "names no test")
	expect(t, checkDurability(strings.Replace(row, "—", "x", 1), []string{"s"}), "names no test")
}
