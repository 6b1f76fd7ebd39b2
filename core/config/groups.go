package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// LoadGroups reads the configuration of a process with one broker group for each
// file; without files, for each --config, or what [Load] would read. Environment and
// flags hold for all of them. What belongs to the whole process ([Key.WholeProcess])
// counts for all files wherever it is set; two files that set it differently, and
// groups that would take each other's port, directory or name, are in the error,
// which is [*Errors] with every fault of all files. The groups are in the order of
// their files.
func LoadGroups(o Options, files ...string) ([]*Loaded, error) {
	o = o.withDefaults()
	if len(files) == 0 {
		files = o.files()
	}
	if len(files) > 1 && o.Mode&Broker == 0 {
		return nil, &Errors{[]*Error{onlyOne(files, fmt.Sprintf("each file is a broker group, and a %s has none", o.Mode))}}
	}
	if len(files) == 0 {
		files = []string{""}
	}
	loaders := make([]*loader, len(files))
	for i, path := range files {
		loaders[i] = o.read(path)
	}
	errs := oneProcess(loaders)
	groups := make([]*Loaded, len(files))
	for i, l := range loaders {
		groups[i] = l.finish()
		groups[i].File = files[i]
		for _, e := range l.errs {
			if e.Source == (Source{}) && len(files) > 1 { // of a default: in which of them
				e.Source = Source{Kind: FromFile, Name: files[i]}
			}
			errs = append(errs, e)
		}
	}
	errs = distinct(errs)
	if len(errs) == 0 {
		errs = conflicts(groups)
	}
	if len(errs) > 0 {
		return nil, &Errors{errs}
	}
	return groups, nil
}

// onlyOne refuses several files.
func onlyOne(files []string, why string) *Error {
	return &Error{Kind: ErrConflict, Source: Source{Kind: FromFile, Name: files[1]}, Reason: "it is one configuration file too many, beside " + files[0] + ": " + why}
}

// distinct leaves out what is said already: environment and flags are read for each
// file.
func distinct(errs []*Error) []*Error {
	var out []*Error
	for _, e := range errs {
		if !slices.ContainsFunc(out, func(o *Error) bool { return o.Error() == e.Error() }) {
			out = append(out, e)
		}
	}
	return out
}

// WholeProcess tells whether the key has one value in a process that runs as mode,
// whatever number of broker groups it has.
func (k Key) WholeProcess(mode Mode) bool {
	switch {
	case k.Status != Honoured || k.Applies&mode == 0:
		return false
	case k.Name == "data" || k.Name == "dev":
		return false
	case k.Group == GroupNode:
		return true
	case k.Group == GroupMetrics: // the others say what one broker shows
		return k.Applies == Standalone || strings.HasPrefix(k.Name, "traces")
	default: // the name server of a standalone process is there once
		return mode == Standalone && (k.Applies == Namesrv || k.Name == "transport")
	}
}

// oneProcess lets what belongs to the whole process and is set in one file count in
// the others, and returns what two files set differently.
func oneProcess(all []*loader) []*Error {
	var errs []*Error
	if len(all) < 2 {
		return nil
	}
	for _, k := range all[0].table.keys {
		if !k.WholeProcess(all[0].mode) {
			continue
		}
		by := slices.IndexFunc(all, func(l *loader) bool { return l.origin[k.Name] != Source{} })
		if by < 0 {
			continue
		}
		first := all[by]
		v, src := first.get(k.Name), first.origin[k.Name]
		for _, l := range all {
			switch {
			case l.origin[k.Name] == Source{}:
				l.set(k.Name, v, src)
			case k.format(l.get(k.Name)) != k.format(v):
				errs = append(errs, &Error{Kind: ErrConflict, Key: k.Name, Value: k.shown(l.get(k.Name)), Source: l.origin[k.Name], Earlier: src,
					Reason: fmt.Sprintf("at %s it is %s, and it belongs to the whole process; set it in one of the files", src, k.shown(v))})
			}
		}
	}
	return errs
}

// conflicts are what two groups of one process must not have in common.
func conflicts(all []*Loaded) []*Error {
	var errs []*Error
	for i, b := range all {
		for _, a := range all[:i] {
			pa, erra := filepath.Abs(a.File)
			pb, errb := filepath.Abs(b.File)
			if erra == nil && errb == nil && pa == pb {
				errs = append(errs, &Error{Kind: ErrConflict, Source: Source{Kind: FromFile, Name: b.File}, Reason: "it is given twice; each file is a broker group of its own"})
				continue
			}
			errs = append(errs, contested(a, b)...)
		}
	}
	return errs
}

// contested are the faults of two groups.
func contested(a, b *Loaded) []*Error {
	var errs []*Error
	if x, y := a.Config.Broker, b.Config.Broker; x.Name == y.Name && x.ID == y.ID {
		errs = append(errs, both(a, "brokerName", b, "brokerName", y.Name, "name servers, log and metrics tell broker groups by their names; give each its own"))
	}
	if ka, kb, dir := sameDir(a, b); dir != "" {
		errs = append(errs, both(a, ka, b, kb, dir, "two broker groups cannot keep their data in one directory; give each its own"))
	}
	if ka, kb, addr := samePort(a, b); addr != "" {
		errs = append(errs, both(a, ka, b, kb, addr, "two broker groups cannot listen on one port; give each its own"))
	}
	return errs
}

// samePort is the first address of b that collides with one of a, with the key of
// each.
func samePort(a, b *Loaded) (keyA, keyB, addr string) {
	for _, y := range b.Config.ports(Broker) {
		for _, x := range a.Config.ports(Broker) {
			if x.collides(y) {
				return x.key, y.key, y.addr
			}
		}
	}
	return "", "", ""
}

// sameDir is the first directory that both keep files in, with its key in each.
func sameDir(a, b *Loaded) (keyA, keyB, dir string) {
	keys := func(l *Loaded) [][2]string {
		c := &l.Config
		return [][2]string{{"data", c.Node.Data}, {"storePathRootDir", c.Store.RootDir}, {"storePathCommitLog", c.Store.CommitLogDir}}
	}
	for _, y := range keys(b) {
		for _, x := range keys(a) {
			if x[1] != "" && y[1] != "" && physical(x[1]) == physical(y[1]) {
				return x[0], y[0], y[1]
			}
		}
	}
	return "", "", ""
}

// physical is a path by which two names of one directory are seen to be one, as far
// as the directory exists.
func physical(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// both is the error of what two groups have in common.
func both(a *Loaded, keyA string, b *Loaded, keyB, value, so string) *Error {
	src, other := b.Config.origin[keyB], a.Config.origin[keyA]
	also := fmt.Sprintf("it is also %s at %s", keyA, other)
	switch {
	case src == Source{} && other == Source{} && keyA == keyB:
		also = fmt.Sprintf("it is the default, of %s as well", a.File)
	case other == Source{}:
		also = fmt.Sprintf("it is also %s of %s, by default", keyA, a.File)
	case src == other:
		also = fmt.Sprintf("it holds for %s and %s", a.File, b.File)
	}
	if src == (Source{}) {
		src = Source{Kind: FromFile, Name: b.File}
	}
	if other == (Source{}) {
		other = Source{Kind: FromFile, Name: a.File}
	}
	return &Error{Kind: ErrConflict, Key: keyB, Value: shorten(value), Source: src, Earlier: other, Reason: also + ": " + so}
}
