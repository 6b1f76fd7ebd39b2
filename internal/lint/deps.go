package lint

import (
	"fmt"
	"strings"
)

// module is the path of the repository's main module.
const module = "github.com/hardpointmq/hardpoint"

// pkg is what `go list -deps -json` tells of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string // direct
	Deps       []string // direct and indirect
}

// layer is one rule of the import direction. Packages are named relative to the
// module; a name covers itself and everything below it.
type layer struct {
	name   string
	of     []string // packages the rule is about
	except []string // packages below them that it is not about
	deny   []string // must not be reached; a leading "./" means inside the module
	allow  []string // not nil: besides the standard library only these may be reached
	why    string
}

const (
	fx       = "go.uber.org/fx"
	goPlugin = "github.com/hashicorp/go-plugin"
	grpc     = "google.golang.org/grpc"
)

// layers restates the import rules of docs/architecture.md for indirect imports.
var layers = []layer{
	{
		name:  "the smallest contracts",
		of:    []string{"core/message", "core/plugin"},
		allow: []string{"./core/message", "./core/plugin"},
		why:   "every third-party plugin links them: the standard library has to do",
	},
	{
		name: "contracts, suites and decorators",
		of: []string{
			"core/api", "core/command", "core/vfs",
			"core/storage", "core/replication", "core/transport", "core/allocate",
		},
		except: []string{"core/storage/storagemw/tracing"},
		allow: []string{
			"./core/message", "./core/plugin", "./core/api", "./core/command", "./core/vfs",
			"./core/storage", "./core/replication", "./core/transport", "./core/allocate",
			"golang.org/x/sys", "github.com/valyala/fastjson",
		},
		why: "contracts are what plugins of others are built from: what they reach becomes everybody's dependency",
	},
	{
		name: "tracing",
		of:   []string{"core/storage/storagemw/tracing"},
		allow: []string{
			"./core/message", "./core/plugin", "./core/vfs", "./core/storage", "golang.org/x/sys",
			"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/semconv", "go.opentelemetry.io/otel/trace",
			"github.com/cespare/xxhash/v2",
		},
		why: "the API of OpenTelemetry is linked by those who trace, without SDK and exporters",
	},
	{
		name: "contracts do not know each other",
		of:   []string{"core/storage", "core/allocate", "core/transport"},
		deny: []string{"./core/replication"},
		why:  "replication may name the store; no other contract names another",
	},
	{
		name:   "plugins",
		of:     []string{"plugins"},
		except: []string{"plugins/standard"},
		deny:   []string{fx, goPlugin, "./core/broker", "./core/nameserver", "./core/internal", "./core/config", "./core/wiring", "./sdk", "./cmd", "./plugins/standard"},
		why:    "a plugin is a plain value: the same code runs in the broker, in a process of its own and in a test",
	},
	{
		name:   "gRPC in plugins",
		of:     []string{"plugins"},
		except: []string{"plugins/standard", "plugins/transport/grpc"},
		deny:   []string{grpc},
		why:    "only the transport that speaks it and sdk link gRPC",
	},
	{
		name: "the engine",
		of:   []string{"core/broker", "core/nameserver", "core/internal", "core/config", "core/wiring"},
		deny: []string{goPlugin, grpc, "./plugins", "./sdk", "./cmd"},
		why:  "the engine knows contracts; how a plugin is hosted and which one it is, is not its business",
	},
	{
		name: "the engine's behaviours",
		of:   []string{"core/internal", "core/config"},
		deny: []string{fx, "./core/wiring", "./core/broker", "./core/nameserver"},
		why:  "fx stays in core/wiring and the module.go files: a behaviour is built by a constructor that a test can call",
	},
	{
		name:   "sdk",
		of:     []string{"sdk"},
		except: []string{"sdk/embedded", "sdk/client"},
		deny:   []string{fx, "./plugins", "./core/broker", "./core/nameserver", "./core/internal", "./core/wiring", "./cmd"},
		why:    "the wire serves any plugin and ends up in plugin binaries",
	},
	{
		name: "the client",
		of:   []string{"sdk/client"},
		deny: []string{fx, goPlugin, "./core/broker", "./core/nameserver", "./core/internal", "./core/wiring", "./plugins/storage", "./plugins/replication", "./plugins/standard", "./cmd"},
		why:  "the client names its default transport and allocator and nothing of the broker",
	},
}

// pluginKinds are the folders below plugins that hold one plugin each.
var pluginKinds = []string{"storage", "allocate", "replication", "transport"}

// checkLayers applies the layers and the rule that no plugin reaches another.
func checkLayers(pkgs []pkg) []string {
	var found []string
	std := map[string]bool{"C": true, "unsafe": true}
	for _, p := range pkgs {
		if p.Standard {
			std[p.ImportPath] = true
		}
	}
	byPath := make(map[string]pkg, len(pkgs))
	for _, p := range pkgs {
		byPath[p.ImportPath] = p
	}
	for _, p := range pkgs {
		rel, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		for _, l := range layers {
			if !under(rel, l.of) || under(rel, l.except) {
				continue
			}
			for _, d := range p.Deps {
				if std[d] {
					continue
				}
				if under(d, expand(l.deny)) || l.allow != nil && !under(d, expand(l.allow)) {
					found = append(found, fmt.Sprintf("%s reaches %s (%s): %s; by %s",
						rel, d, l.name, l.why, route(byPath, p.ImportPath, d)))
				}
			}
		}
		if own := pluginOf(rel); own != "" {
			for _, d := range p.Deps {
				drel, _ := strings.CutPrefix(d, module+"/")
				if other := pluginOf(drel); other != "" && other != own {
					found = append(found, fmt.Sprintf("%s reaches %s: plugins do not know each other, they meet in contracts; by %s",
						rel, drel, route(byPath, p.ImportPath, d)))
				}
			}
		}
	}
	return found
}

// testLibraries are packages that only tests link, besides ours that end in test.
var testLibraries = []string{"github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid"}

// forTests tells whether a package is one of ours that only tests link.
func forTests(rel string) bool { return strings.HasSuffix(rel, "test") || under(rel, []string{"test"}) }

// checkTestPackages finds what tests need in programs: dead weight in every
// binary, and flags and goroutines that nobody asked for. Package testing itself
// may be reached (go-plugin offers helpers for tests in its only package), but
// nothing of ours names it.
func checkTestPackages(pkgs []pkg) []string {
	var found []string
	byPath := make(map[string]pkg, len(pkgs))
	for _, p := range pkgs {
		byPath[p.ImportPath] = p
	}
	for _, p := range pkgs {
		rel, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours || forTests(rel) {
			continue
		}
		for _, d := range p.Imports {
			if under(d, []string{"testing"}) {
				found = append(found, fmt.Sprintf("%s names %s: take an interface with the methods that are needed, or move it to a package that ends in test", rel, d))
			}
		}
		for _, d := range p.Deps {
			drel, _ := strings.CutPrefix(d, module+"/")
			if drel != d && forTests(drel) || under(d, testLibraries) {
				found = append(found, fmt.Sprintf("%s reaches %s, which is for tests: move what a program needs out of it; by %s", rel, drel, route(byPath, p.ImportPath, d)))
			}
		}
	}
	return found
}

// pluginOf names the plugin folder (plugins/<kind>/<name>) that a package
// belongs to, or "" if it belongs to none.
func pluginOf(rel string) string {
	for _, k := range pluginKinds {
		if rest, ok := strings.CutPrefix(rel, "plugins/"+k+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			return k + "/" + name
		}
	}
	return ""
}

func expand(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		if rest, ok := strings.CutPrefix(n, "./"); ok {
			n = module + "/" + rest
		}
		out[i] = n
	}
	return out
}

func under(path string, names []string) bool {
	for _, n := range names {
		if path == n || strings.HasPrefix(path, n+"/") {
			return true
		}
	}
	return false
}

// route is a shortest chain of imports, so that the finding says where to cut.
func route(byPath map[string]pkg, from, to string) string {
	prev := map[string]string{from: from}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, next := range byPath[at].Imports {
			if _, seen := prev[next]; seen {
				continue
			}
			prev[next] = at
			if next != to {
				queue = append(queue, next)
				continue
			}
			chain := []string{to}
			for at := prev[to]; at != from; at = prev[at] {
				chain = append([]string{at}, chain...)
			}
			return strings.Join(append([]string{from}, chain...), " -> ")
		}
	}
	return "a direct import"
}
