package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// render gives the exported API of the package in dir, one line a declaration,
// sorted; "" if the folder holds no package. Comments are left out.
func render(dir, name string) (string, error) {
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled, ctx.BuildTags = "linux", "amd64", false, nil
	names, err := goFiles(&ctx, dir)
	if err != nil {
		return "", err
	}
	fset := token.NewFileSet()
	var out []string
	for _, n := range names {
		f, err := parser.ParseFile(fset, filepath.Join(dir, n), nil, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		if f.Name.Name == "main" {
			return "", nil
		}
		for _, d := range f.Decls {
			out = append(out, declaration(fset, d)...)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	slices.Sort(out)
	return "package " + name + "\n" + strings.Join(append(out, ""), "\n"), nil
}

// goFiles lists the files that are built for the context, tests left out.
// go/build alone would refuse a folder that holds no package.
func goFiles(ctx *build.Context, dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range all {
		n := filepath.Base(p)
		if strings.HasSuffix(n, "_test.go") {
			continue
		}
		ok, err := ctx.MatchFile(dir, n)
		if err != nil {
			return nil, err
		}
		if ok {
			names = append(names, n)
		}
	}
	return names, nil
}

func declaration(fset *token.FileSet, d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return function(fset, d)
	case *ast.GenDecl:
		var out []string
		var typ ast.Expr // of a constant that repeats the one before
		for i, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				if s.Type != nil || len(s.Values) > 0 {
					typ = s.Type
				}
				out = append(out, values(fset, d.Tok, s, typ, i)...)
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					out = append(out, typeSpec(fset, s)...)
				}
			}
		}
		return out
	}
	return nil
}

func function(fset *token.FileSet, f *ast.FuncDecl) []string {
	if !f.Name.IsExported() {
		return nil
	}
	recv := ""
	if f.Recv != nil {
		t := text(fset, f.Recv.List[0].Type)
		bare, _, _ := strings.Cut(strings.TrimPrefix(t, "*"), "[")
		if !token.IsExported(bare) {
			return nil
		}
		recv = "(" + t + ") "
	}
	return []string{"func " + recv + f.Name.Name + strings.TrimPrefix(text(fset, f.Type), "func")}
}

func values(fset *token.FileSet, tok token.Token, s *ast.ValueSpec, typ ast.Expr, index int) []string {
	var out []string
	for i, n := range s.Names {
		if !n.IsExported() {
			continue
		}
		line := tok.String() + " " + n.Name
		if typ != nil {
			line += " " + text(fset, typ)
		}
		// The value of a constant is part of the contract: where it is counted,
		// a constant put in between changes those after it.
		if tok == token.CONST {
			if i < len(s.Values) {
				line += " = " + text(fset, s.Values[i])
			}
			if i >= len(s.Values) || strings.Contains(line, "iota") {
				line += fmt.Sprintf(" (iota %d)", index)
			}
		}
		out = append(out, line)
	}
	return out
}

func typeSpec(fset *token.FileSet, s *ast.TypeSpec) []string {
	head := "type " + s.Name.Name
	if s.TypeParams != nil {
		head += text(fset, &ast.FuncType{TypeParams: s.TypeParams, Params: &ast.FieldList{}})[len("func"):]
		head = strings.TrimSuffix(head, "()")
	}
	if s.Assign.IsValid() {
		head += " ="
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		return append([]string{head + " struct"}, fields(fset, s.Name.Name, t)...)
	case *ast.InterfaceType:
		out := []string{head + " interface"}
		for _, m := range t.Methods.List {
			prefix := "type " + s.Name.Name + " interface, "
			if len(m.Names) == 0 {
				out = append(out, prefix+text(fset, m.Type))
			}
			for _, n := range m.Names {
				// A method that is not exported seals the interface: that is part of it.
				out = append(out, prefix+n.Name+strings.TrimPrefix(text(fset, m.Type), "func"))
			}
		}
		return out
	}
	return []string{head + " " + text(fset, s.Type)}
}

func fields(fset *token.FileSet, name string, t *ast.StructType) []string {
	var out []string
	prefix := "type " + name + " struct, "
	for _, f := range t.Fields.List {
		tag := ""
		if f.Tag != nil {
			tag = " " + f.Tag.Value
		}
		if len(f.Names) == 0 {
			typ := text(fset, f.Type)
			out = append(out, prefix+"embedded "+typ+tag)
		}
		for _, n := range f.Names {
			switch {
			case n.IsExported():
				out = append(out, prefix+n.Name+" "+text(fset, f.Type)+tag)
			case n.Name == "_":
				out = append(out, prefix+"_ "+text(fset, f.Type))
			}
		}
	}
	return out
}

// text prints a node on one line.
func text(fset *token.FileSet, n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, fset, n); err != nil {
		panic(fmt.Sprintf("apisurface: a parsed node does not print: %v", err))
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
