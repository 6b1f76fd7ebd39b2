package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// maxLines bounds a hand-written file that is not a test.
const maxLines = 800

// maxFields bounds a struct: one with more has several concerns.
const maxFields = 25

// source is one parsed Go file of the repository.
type source struct {
	path string // slash-separated, relative to the root
	fset *token.FileSet
	file *ast.File
}

func (s source) test() bool      { return strings.HasSuffix(s.path, "_test.go") }
func (s source) generated() bool { return ast.IsGenerated(s.file) }

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

// checkSize finds files that have grown beyond what one reads at once.
func checkSize(s source) []string {
	lines := s.fset.File(s.file.FileStart).LineCount()
	if s.test() || s.generated() || lines <= maxLines {
		return nil
	}
	return []string{fmt.Sprintf("%s has %d lines, more than %d: split it by concern, so that a reader finds the part he looks for by its file name",
		s.path, lines, maxLines)}
}

// checkFields finds structs that hold more than one keeps in mind.
func checkFields(s source) []string {
	if s.test() || s.generated() {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		st, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		fields := 0
		for _, f := range st.Fields.List {
			fields += max(len(f.Names), 1)
		}
		if fields > maxFields {
			found = append(found, fmt.Sprintf("%s: %s has %d fields, more than %d: put those that belong together into structs of their own",
				s.at(spec), spec.Name.Name, fields, maxFields))
		}
		return true
	})
	return found
}

// checkInit finds init functions: what they register is hidden from main and
// from tests, and depends on imports that nobody reads.
func checkInit(s source) []string {
	if s.generated() {
		return nil
	}
	var found []string
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			found = append(found, s.at(f)+" declares init(): nothing is wired by importing it; build a value and list it in plugins/standard or in main")
		}
	}
	return found
}

// checkSleep finds time.Sleep, in tests as well: it either hides a race or
// wastes time.
func checkSleep(s source) []string {
	name := importName(s.file, "time")
	if name == "" || s.generated() {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" && isIdent(sel.X, name) {
			found = append(found, s.at(sel)+" sleeps: wait on a channel, on a timer together with the context, on the injected clock, or use testing/synctest")
		}
		return true
	})
	return found
}

// checkCorpus finds fuzz targets without inputs on disk, which go test tries each time;
// has tells whether a directory has a file.
func checkCorpus(s source, has func(dir string) bool) []string {
	if !s.test() {
		return nil
	}
	var found []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") {
			continue
		}
		if dir := path.Join(path.Dir(s.path), "testdata/fuzz", f.Name.Name); !has(dir) {
			found = append(found, fmt.Sprintf("%s: %s has no corpus: keep the inputs that found something, or show the form, in %s", s.at(f), f.Name.Name, dir))
		}
	}
	return found
}

// checkSkip finds tests that leave themselves out where nobody notices. Left are
// conformance suites, whose harness says what a plugin lacks; inputs of a fuzz
// test and steps of a random one; and what the race detector cannot run, if its name is one that make
// test-plain runs without it.
func checkSkip(s source) []string {
	dir := path.Dir(s.path)
	if dir == "internal/hosttest" || strings.HasSuffix(dir, "test") && strings.HasPrefix(dir, "core/") {
		return nil
	}
	var found []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || strings.HasPrefix(f.Name.Name, "Fuzz") || slices.ContainsFunc(f.Type.Params.List, ofRapid) {
			continue
		}
		race := map[ast.Node]bool{}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if i, ok := n.(*ast.IfStmt); ok && isIdent(i.Cond, "raceEnabled") {
				race[i.Body] = true
			}
			if race[n] {
				if !strings.Contains(f.Name.Name, "Alloc") {
					found = append(found, fmt.Sprintf("%s leaves %s out under the race detector, and no run without it looks for that name: put Alloc in it (see test-plain in the Makefile)", s.at(n), f.Name.Name))
				}
				return false
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Skip" || sel.Sel.Name == "Skipf" || sel.Sel.Name == "SkipNow") {
				if x, ok := sel.X.(*ast.Ident); ok && slices.Contains([]string{"t", "tb", "b"}, x.Name) {
					found = append(found, s.at(sel)+" leaves a test out: internal/hosttest does so where a run that may leave out none notices; what belongs to another process is chosen in TestMain")
				}
			}
			return true
		})
	}
	return found
}

// ofRapid tells whether a parameter is what a random test draws from.
func ofRapid(p *ast.Field) bool {
	star, ok := p.Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && isIdent(sel.X, "rapid")
}

// contracts maps the package of each contract to its mandatory interface.
var contracts = map[string]string{
	module + "/core/storage":     "Store",
	module + "/core/replication": "Replicator",
	module + "/core/transport":   "Transport",
	module + "/core/allocate":    "Allocator",
}

// checkEmbedding finds structs that embed a contract's interface. Embedding
// forwards Capabilities, and with it every facet, around the decorator; only
// <kind>mw.Base embeds, because it answers Capabilities itself.
func checkEmbedding(s source) []string {
	if s.test() || s.generated() {
		return nil
	}
	var found []string
	for pkgPath, iface := range contracts {
		name := importName(s.file, pkgPath)
		if name == "" {
			continue
		}
		inMW := strings.HasSuffix(path.Base(path.Dir(s.path)), "mw")
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok || inMW && spec.Name.Name == "Base" {
				return true
			}
			for _, f := range st.Fields.List {
				sel, ok := f.Type.(*ast.SelectorExpr)
				if ok && len(f.Names) == 0 && sel.Sel.Name == iface && isIdent(sel.X, name) {
					found = append(found, fmt.Sprintf("%s embeds %s.%s in %s: its facets would pass the decorator unwrapped; embed the Base of the mw package and wrap each facet",
						s.at(f), name, iface, spec.Name.Name))
				}
			}
			return true
		})
	}
	return found
}

// checkPackages applies the rules about whole packages: a package comment, and
// goleak where goroutines are started.
func checkPackages(sources []source) []string {
	type facts struct{ comment, starts, tests, goleak, suite, generated bool }
	dirs := map[string]*facts{}
	var order []string
	for _, s := range sources {
		dir := path.Dir(s.path)
		f := dirs[dir]
		if f == nil {
			f = &facts{generated: true}
			dirs[dir] = f
			order = append(order, dir)
		}
		if s.test() {
			f.tests = true
			f.goleak = f.goleak || importName(s.file, "go.uber.org/goleak") != ""
			continue
		}
		f.generated = f.generated && s.generated()
		f.comment = f.comment || s.file.Doc != nil
		f.suite = f.suite || importName(s.file, "testing") != ""
		if !s.generated() {
			ast.Inspect(s.file, func(n ast.Node) bool {
				_, starts := n.(*ast.GoStmt)
				f.starts = f.starts || starts
				return true
			})
		}
	}
	var found []string
	for _, dir := range order {
		f := dirs[dir]
		if !f.comment && !f.generated {
			found = append(found, dir+" has no package comment: say what it is for in doc.go, a newcomer reads that first")
		}
		if f.starts && f.tests && !f.suite && !f.goleak {
			found = append(found, dir+" starts goroutines and its tests do not look for leaks: call goleak.VerifyTestMain in TestMain")
		}
	}
	return found
}

// importName is the name under which a file knows a package, or "".
func importName(f *ast.File, pkgPath string) string {
	for _, i := range f.Imports {
		if strings.Trim(i.Path.Value, `"`) != pkgPath {
			continue
		}
		if i.Name != nil {
			return i.Name.Name
		}
		return path.Base(pkgPath)
	}
	return ""
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
