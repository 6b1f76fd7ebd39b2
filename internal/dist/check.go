package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// machine is how binaries and packages name an architecture.
type machine struct {
	elf      elf.Machine
	macho    macho.Cpu
	pe       uint16
	deb, rpm string
}

var machines = map[string]machine{
	"amd64": {elf.EM_X86_64, macho.CpuAmd64, pe.IMAGE_FILE_MACHINE_AMD64, "amd64", "x86_64"},
	"arm64": {elf.EM_AARCH64, macho.CpuArm64, pe.IMAGE_FILE_MACHINE_ARM64, "arm64", "aarch64"},
}

// check reads what was made for a target as one who got it: the program in the archive,
// and in deb and rpm, is one for that system and machine, and needs no other file.
func (r *release) check(target string) error {
	system, arch, _ := strings.Cut(target, "/")
	m, ok := machines[arch]
	if !ok {
		return fmt.Errorf("nothing is known about binaries of %s: add it to machines in internal/dist/check.go", arch)
	}
	base := fmt.Sprintf("%s-%s-%s-%s", name, r.version, system, arch)
	archive, unpack := base+".tar.gz", untarGz
	if system == "windows" {
		archive, unpack = base+".zip", unzipped
	}
	packed, err := os.ReadFile(filepath.Join(r.out, archive))
	if err != nil {
		return err
	}
	prog, err := unpack(packed, path.Join(base, program(system)))
	if err == nil {
		err = checkProgram(prog, system, m)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	if system != "linux" || r.nfpm == "" {
		return nil
	}
	for kind, look := range map[string]func(b, program []byte, m machine) error{"deb": checkDeb, "rpm": checkRPM} {
		b, err := os.ReadFile(filepath.Join(r.out, base+"."+kind))
		if err != nil {
			return err
		}
		if err := look(b, prog, m); err != nil {
			return fmt.Errorf("%s.%s: %w", base, kind, err)
		}
	}
	return nil
}

// checkProgram tells what keeps a program from running on any machine of a kind.
func checkProgram(b []byte, system string, m machine) error {
	switch r := bytes.NewReader(b); system {
	case "linux":
		f, err := elf.NewFile(r)
		if err != nil {
			return err
		}
		if f.Machine != m.elf {
			return fmt.Errorf("the program is of %v, not of %v", f.Machine, m.elf)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				return errors.New("the program is not static: it names a dynamic linker")
			}
		}
		if needs, err := f.DynString(elf.DT_NEEDED); err != nil || len(needs) > 0 {
			return errors.Join(fmt.Errorf("the program is not static: it needs %q", needs), err)
		}
	case "darwin":
		f, err := macho.NewFile(r)
		if err != nil {
			return err
		}
		if f.Cpu != m.macho || f.Type != macho.TypeExec {
			return fmt.Errorf("the program is a %v of %v, not an executable of %v", f.Type, f.Cpu, m.macho)
		}
	case "windows":
		f, err := pe.NewFile(r)
		if err != nil {
			return err
		}
		if f.Machine != m.pe || f.Characteristics&pe.IMAGE_FILE_EXECUTABLE_IMAGE == 0 {
			return fmt.Errorf("the program is of machine %#x (flags %#x), not an executable of %#x", f.Machine, f.Characteristics, m.pe)
		}
	default:
		return fmt.Errorf("nothing is known about binaries of %s: add it to internal/dist/check.go", system)
	}
	return nil
}

// errNotThere: an archive lacks a file, or has it with other permissions.
var errNotThere = errors.New("is not there as a file that everybody may run")

func untarGz(b []byte, want string) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s %w", want, errNotThere)
		}
		if err != nil {
			return nil, err
		}
		if path.Clean(h.Name) == path.Clean(want) && mayRun(h.FileInfo().Mode()) {
			return io.ReadAll(t)
		}
	}
}

func unzipped(b []byte, want string) ([]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	for _, f := range z.File {
		if f.Name == want && mayRun(f.Mode()) {
			r, err := f.Open()
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		}
	}
	return nil, fmt.Errorf("%s %w", want, errNotThere)
}

func mayRun(m fs.FileMode) bool { return m.IsRegular() && m.Perm() == 0o755 }

// checkDeb looks at the architecture that a deb names and the program in it.
func checkDeb(b, program []byte, m machine) error {
	parts, err := ar(b)
	if err != nil {
		return err
	}
	said, err := control(parts["control.tar.gz"])
	if err != nil {
		return err
	}
	if !slices.Contains(said, "Architecture: "+m.deb) {
		return fmt.Errorf("it does not say that its architecture is %s", m.deb)
	}
	got, err := untarGz(parts["data.tar.gz"], "usr/bin/"+name)
	if err == nil && !bytes.Equal(got, program) {
		err = errors.New("its program is not that of the archive")
	}
	return err
}

// control is the lines of the file of that name.
func control(tarred []byte) ([]string, error) {
	z, err := gzip.NewReader(bytes.NewReader(tarred))
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err != nil {
			return nil, fmt.Errorf("the file control: %w", err)
		}
		if path.Clean(h.Name) == "control" {
			b, err := io.ReadAll(t)
			return strings.Split(string(b), "\n"), err
		}
	}
}

// ar reads the members of an archive of that kind: a mark, then heads of 60 bytes with
// the name in 16 and the size in 10 of them, each followed by so much and filled up to
// an even number.
func ar(b []byte) (map[string][]byte, error) {
	bad := errors.New("it is no deb")
	b, ok := bytes.CutPrefix(b, []byte("!<arch>\n"))
	if !ok {
		return nil, bad
	}
	parts := map[string][]byte{}
	for len(b) > 0 {
		if len(b) < 60 {
			return nil, bad
		}
		size, err := strconv.Atoi(strings.TrimSpace(string(b[48:58])))
		if err != nil || size < 0 || size > len(b)-60 {
			return nil, bad
		}
		parts[strings.TrimRight(string(b[:16]), " /")] = b[60 : 60+size]
		b = b[min(60+size+size%2, len(b)):]
	}
	return parts, nil
}

// Tags of an RPM's header.
const rpmArch, rpmDigests = 1022, 1035

// checkRPM looks at the architecture that an RPM names and the digests of its files.
func checkRPM(b, program []byte, m machine) error {
	const lead = 96
	bad := errors.New("it is no rpm")
	if len(b) < lead || !bytes.HasPrefix(b, []byte{0xed, 0xab, 0xee, 0xdb}) {
		return bad
	}
	_, signed, ok := rpmTexts(b[lead:])
	from := lead + (signed+7)/8*8
	if !ok || from > len(b) {
		return bad
	}
	texts, _, ok := rpmTexts(b[from:])
	if !ok {
		return bad
	}
	sum := sha256.Sum256(program)
	switch {
	case !slices.Equal(texts[rpmArch], []string{m.rpm}):
		return fmt.Errorf("its architecture is %q, not %s", texts[rpmArch], m.rpm)
	case !slices.Contains(texts[rpmDigests], hex.EncodeToString(sum[:])):
		return errors.New("the program of the archive is not in it")
	}
	return nil
}

// rpmTexts reads what a header has as text, by tag, and tells its length.
func rpmTexts(b []byte) (texts map[uint32][]string, size int, ok bool) {
	const head, entry = 16, 16
	if len(b) < head || !bytes.HasPrefix(b, []byte{0x8e, 0xad, 0xe8}) {
		return nil, 0, false
	}
	entries, bytesOf := int(binary.BigEndian.Uint32(b[8:])), int(binary.BigEndian.Uint32(b[12:]))
	size = head + entry*entries + bytesOf
	if entries > 1<<16 || size > len(b) {
		return nil, 0, false
	}
	data := b[head+entry*entries : size]
	texts = map[uint32][]string{}
	for e := b[head : head+entry*entries]; len(e) > 0; e = e[entry:] {
		tag, kind := binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:])
		at, count := int(binary.BigEndian.Uint32(e[8:])), int(binary.BigEndian.Uint32(e[12:]))
		if kind != 6 && kind != 8 && kind != 9 { // a text, several, one in several languages
			continue
		}
		for ; count > 0; count-- {
			n := -1
			if at <= len(data) {
				n = bytes.IndexByte(data[at:], 0)
			}
			if n < 0 {
				return nil, 0, false
			}
			texts[tag] = append(texts[tag], string(data[at:at+n]))
			at += n + 1
		}
	}
	return texts, size, true
}
