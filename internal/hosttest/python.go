package hosttest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// PythonEnv names the interpreter that tests run, in the place of those that are
// looked for.
const PythonEnv = "HARDPOINT_PYTHON"

// Python is the path of an interpreter that can import the modules: that of
// PythonEnv, the python3 of PATH, or the system's. They differ where somebody
// manages versions of Python.
func Python(t testing.TB, modules ...string) string {
	t.Helper()
	tried := []string{"python3", "/usr/bin/python3", "/usr/local/bin/python3"}
	if p := os.Getenv(PythonEnv); p != "" {
		tried = []string{p}
	}
	var why []string
	for _, name := range tried {
		path, err := exec.LookPath(name)
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		out, err := exec.Command(path, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput()
		if err == nil {
			return path
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		why = append(why, path+": "+lines[len(lines)-1])
	}
	Missing(t, "no Python that can import %s (%s); Debian has them in python3-grpcio and python3-protobuf, and %s names an interpreter",
		strings.Join(modules, " and "), strings.Join(why, "; "), PythonEnv)
	return ""
}
