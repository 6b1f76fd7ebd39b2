package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// templates are the files of new plugins: LANG/KIND and LANG/common. Their names
// lose .tmpl.
//
//go:embed templates
var templates embed.FS

const (
	modulePath = "github.com/hardpointmq/hardpoint"
	// goVersion is what the module asks for, and so plugins in Go.
	goVersion = "1.26.0"
)

// scaffold is a plugin to be made, and what its templates know.
type scaffold struct {
	Kind, Name string
	Lang       string
	Dir        string
	Module     string // of Go
	Sources    string // folder of Hardpoint's sources, to build against

	Package  string // of the plugin, and its program's name
	Env      string // begins the names of environment variables
	Go       string
	Version  string   // of Hardpoint
	Replace  string   // Sources, for go.mod
	Requires []string // of go.mod: what Hardpoint needs
	Class    string   // of the plugin in Python
	Python   string   // folder with the package of plugins in Python; empty: it is installed
}

// scaffoldKinds are the kinds that there are templates of in a language.
func scaffoldKinds(lang string) []string {
	var kinds []string
	for _, k := range pluginKinds() {
		if _, err := templates.ReadDir(path.Join("templates", lang, k.name)); err == nil {
			kinds = append(kinds, k.name)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Serve is the function of sdk/serve for the kind.
func (s *scaffold) Serve() string { return strings.ToUpper(s.Kind[:1]) + s.Kind[1:] }

// Noun is what a plugin of the kind is.
func (s *scaffold) Noun() string {
	return map[string]string{wire.Allocate: "An allocator", wire.Replication: "A replicator", wire.Storage: "A store", wire.Transport: "A transport"}[s.Kind]
}

// Program is the path of the built plugin in its folder.
func (s *scaffold) Program() string {
	if runtime.GOOS == "windows" {
		return "bin/" + s.Package + ".exe"
	}
	return "bin/" + s.Package
}

func (p *program) pluginNew() *cobra.Command {
	var s scaffold
	lang := choice{"go", scaffoldLangs()}
	c := &cobra.Command{
		Use: "new KIND NAME", Short: "Make the folder of a plugin of one's own",
		Long: "Makes a folder with a plugin that works, its conformance suite, a configuration and a README: a place to begin.\nKIND is allocate, replication, storage or transport (in Python allocate or storage), NAME the name by which configurations will choose it.\n\n" +
			"A plugin in Go, and the suite of one in another language, is built against Hardpoint's sources, which are looked for\nabove the working directory and above this program, unless --hardpoint names them.",
		Args: exactly("KIND", "NAME"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return scaffoldKinds("go"), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			s.Kind, s.Name = args[0], args[1]
			s.Lang = lang.word
			files, err := s.make()
			if err != nil {
				return err
			}
			for _, f := range files {
				fmt.Fprintln(p.stdout, filepath.Join(s.Dir, filepath.FromSlash(f)))
			}
			fmt.Fprintf(p.stdout, "\n%s says how to test, build and run it\n", filepath.Join(s.Dir, "README.md"))
			return nil
		},
	}
	f := c.Flags()
	lang.register(c, "lang", "", "language")
	f.StringVar(&s.Dir, "dir", "", "`folder` to make, NAME in the working directory by default")
	f.StringVar(&s.Module, "module", "", "Go module `path`, example.com/NAME by default")
	f.StringVar(&s.Sources, "hardpoint", "", "`folder` with Hardpoint's sources")
	return c
}

// scaffoldLangs are the languages that there are templates of.
func scaffoldLangs() []string {
	var langs []string
	entries, _ := templates.ReadDir("templates")
	for _, e := range entries {
		if e.IsDir() {
			langs = append(langs, e.Name())
		}
	}
	return langs
}

// make writes the folder and returns its files.
func (s *scaffold) make() ([]string, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, folder := range []string{"common", s.Kind} {
		if err := s.render(path.Join("templates", s.Lang, folder), files); err != nil {
			return nil, err
		}
	}
	if err := s.unambiguous(files); err != nil {
		return nil, err
	}
	module := "" // the folder of the Go module, which has at least the suite
	if s.Lang != "go" {
		module = "suite/"
	}
	mod, err := s.fill("templates/go.mod.tmpl")
	if err != nil {
		return nil, err
	}
	files[module+"go.mod"] = mod
	if s.Replace != "" {
		if files[module+"go.sum"], err = os.ReadFile(filepath.Join(s.Sources, "go.sum")); err != nil {
			return nil, err
		}
	}
	if old, err := os.ReadDir(s.Dir); err == nil && len(old) > 0 {
		return nil, fmt.Errorf("the folder %s is not empty; choose another with --dir", s.Dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for name, content := range files {
		to := filepath.Join(s.Dir, filepath.FromSlash(name))
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, content, mode); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func badName(name string) string {
	return fmt.Sprintf("%q is not a plugin's name: lower case letters, digits and underscores, a letter first", name)
}

// complete checks what the user said and derives the rest.
func (s *scaffold) complete() error {
	k, err := kindNamed(s.Kind)
	if err != nil {
		return misuse{err}
	}
	all, err := standard.Plugins()
	if err != nil {
		return err
	}
	s.Package = strings.ReplaceAll(s.Name, "_", "")
	switch {
	case !slices.Contains(scaffoldKinds(s.Lang), s.Kind):
		return misusef("there is no folder to begin a %s plugin in %s with: the package for %s has %s plugins only; leave --lang out for one in Go", s.Kind, s.Lang, s.Lang, strings.Join(scaffoldKinds(s.Lang), " and "))
	case !config.IsPluginName(s.Name):
		return misuse{errors.New(badName(s.Name))}
	case slices.Contains(k.names(all), s.Name):
		return misusef("%q is a %s plugin that this program contains; choose another name", s.Name, s.Kind)
	case s.Lang == "go" && (token.IsKeyword(s.Package) || doc.IsPredeclared(s.Package) || s.Package == "main" || s.Package == "init"):
		return s.badPackage()
	}
	if s.Dir == "" {
		s.Dir = s.Name
	}
	if s.Module == "" {
		s.Module = "example.com/" + s.Name
	}
	s.Env, s.Go = strings.ToUpper(s.Name), goVersion
	for _, word := range strings.Split(s.Name, "_") {
		if word != "" {
			s.Class += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	if s.Lang == "python" && slices.Contains([]string{"None", "True", "False"}, s.Class) {
		return misusef("a Python class cannot be called %s; choose another name", s.Class)
	}
	if !modulePattern.MatchString(s.Module) {
		return misusef("--module: %q is not the path of a Go module: letters, digits and ._~- between slashes, as in example.com/%s", s.Module, s.Name)
	}
	return s.against()
}

// modulePattern are the characters of a module's path, which go.mod and imports take
// as they are.
var modulePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9._~-]+)*$`)

func (s *scaffold) badPackage() error {
	return misusef("a Go package cannot be called %s here; choose another name", s.Package)
}

// unambiguous refuses a package with the name of one that its files import beside it.
func (s *scaffold) unambiguous(files map[string][]byte) error {
	for name, text := range files {
		if s.Lang != "go" || !strings.HasSuffix(name, ".go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			if at, err := strconv.Unquote(i.Path.Value); err != nil || at != s.Module && path.Base(at) == s.Package {
				return s.badPackage()
			}
		}
	}
	return nil
}

// against finds what a plugin in Go, and the suite of any, is built against.
func (s *scaffold) against() error {
	if s.Sources == "" {
		s.Sources = findSources()
	}
	if s.Sources == "" {
		if s.Version = readBuild().Version; strings.HasPrefix(s.Version, "v") && !strings.Contains(s.Version, "-") {
			return nil // a release: the module proxies have it
		}
		return errors.New("where are Hardpoint's sources? This program is no release, so a plugin is built against a copy of them: name its folder with --hardpoint")
	}
	dir, err := filepath.Abs(s.Sources)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return fmt.Errorf("--hardpoint: %w", err)
	}
	if !isSources(text) {
		return fmt.Errorf("--hardpoint: %s holds another module than %s", dir, modulePath)
	}
	s.Sources, s.Version, s.Replace, s.Requires = dir, "v0.0.0", filepath.ToSlash(dir), requires(string(text))
	s.Python = s.Replace + "/sdk/python"
	if strings.ContainsAny(s.Replace, " \t'") {
		s.Replace = `"` + s.Replace + `"`
	}
	return nil
}

// findSources looks for them above the working directory and this program.
func findSources() string {
	var from []string
	if dir, err := os.Getwd(); err == nil {
		from = append(from, dir)
	}
	if self, err := os.Executable(); err == nil {
		from = append(from, filepath.Dir(self))
	}
	for _, dir := range from {
		for up := filepath.Dir(dir); ; dir, up = up, filepath.Dir(up) {
			if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && isSources(text) {
				return dir
			}
			if up == dir {
				break
			}
		}
	}
	return ""
}

func isSources(goMod []byte) bool {
	first, _, _ := bytes.Cut(goMod, []byte("\n"))
	return string(bytes.TrimSpace(first)) == "module "+modulePath
}

// requires lists the modules and versions that a go.mod names: a new module that
// names them, too, is complete without asking a proxy.
func requires(goMod string) []string {
	var list []string
	within := false
	for line := range strings.Lines(goMod) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "require" && words[1] == "(":
			within = true
		case len(words) == 1 && words[0] == ")":
			within = false
		case len(words) == 3 && words[0] == "require":
			list = append(list, strings.Join(words[1:], " "))
		case within && len(words) == 2:
			list = append(list, strings.Join(words, " "))
		}
	}
	return list
}

// render fills the templates below folder into files.
func (s *scaffold) render(folder string, files map[string][]byte) error {
	return fs.WalkDir(templates, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[s.nameOf(strings.TrimPrefix(name, folder+"/"))], err = s.fill(name)
		return err
	})
}

// fill fills one template.
func (s *scaffold) fill(name string) ([]byte, error) {
	text, err := templates.ReadFile(name)
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, s)
	return b.Bytes(), err
}

// nameOf is where the file of a template goes.
func (s *scaffold) nameOf(name string) string {
	switch name = strings.TrimSuffix(name, ".tmpl"); name {
	case "main.go":
		return path.Join("cmd", s.Package, name)
	case "gitignore":
		return "." + name
	default:
		return name
	}
}
