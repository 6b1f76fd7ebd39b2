package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func encoded(t *testing.T, order binary.ByteOrder, parts ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		require.NoError(t, binary.Write(&b, order, p))
	}
	return b.Bytes()
}

// elfOf makes the head of a program; needs is a library that it wants.
func elfOf(t *testing.T, m elf.Machine, segment elf.ProgType, needs string) []byte {
	t.Helper()
	ident := [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	h := elf.Header64{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(m), Version: 1, Phoff: 64, Phentsize: 56, Phnum: 1, Ehsize: 64, Shentsize: 64}
	parts := []any{nil, elf.Prog64{Type: uint32(segment)}}
	if needs != "" {
		texts := append([]byte("\x00"+needs), make([]byte, 40)...)[:40]
		const at = 64 + 56
		h.Shoff, h.Shnum, h.Shstrndx = at+40+32, 3, 1
		parts = append(parts, texts, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: 1}, elf.Dyn64{},
			elf.Section64{}, elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: at, Size: 40},
			elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: at + 40, Size: 32, Link: 1, Entsize: 16})
	}
	parts[0] = h
	return encoded(t, binary.LittleEndian, parts...)
}

func machoOf(t *testing.T, c macho.Cpu, kind macho.Type) []byte {
	t.Helper()
	return encoded(t, binary.LittleEndian, macho.FileHeader{Magic: macho.Magic64, Cpu: c, Type: kind}, uint32(0))
}

func peOf(t *testing.T, m uint16, flags uint16) []byte {
	t.Helper()
	dos := make([]byte, 128)
	copy(dos, "MZ")
	dos[0x3c] = 128
	return encoded(t, binary.LittleEndian, dos, []byte("PE\x00\x00"), pe.FileHeader{Machine: m, Characteristics: flags}, make([]byte, 64))
}

// debOf makes a deb as far as it is looked at.
func debOf(t *testing.T, arch string, program []byte) []byte {
	t.Helper()
	out := []byte("!<arch>\n")
	add := func(name string, b []byte) {
		out = fmt.Appendf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 0, 0, 0, "100644", len(b))
		out = append(out, b...)
		if len(b)%2 > 0 {
			out = append(out, '\n')
		}
	}
	tarred := func(files ...file) []byte {
		b, err := tarGz(".", files, time.Unix(0, 0))
		require.NoError(t, err)
		return b
	}
	add("debian-binary", []byte("2.0\n"))
	add("control.tar.gz", tarred(file{"control", 0o644, []byte("Package: hardpoint\nArchitecture: " + arch + "\nPriority: optional\n")}))
	add("data.tar.gz", tarred(file{"usr/share/hardpoint", 0o644, nil}, file{"usr/bin/hardpoint", 0o755, program}))
	return out
}

// rpmOf makes an RPM as far as it is looked at.
func rpmOf(t *testing.T, arch string, program []byte) []byte {
	t.Helper()
	type entry struct{ Tag, Kind, Offset, Count uint32 }
	header := func(data string, entries ...entry) []byte {
		return encoded(t, binary.BigEndian, []byte{0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0}, uint32(len(entries)), uint32(len(data)), entries, []byte(data))
	}
	sum := sha256.Sum256(program)
	digest := hex.EncodeToString(sum[:])
	lead := append([]byte{0xed, 0xab, 0xee, 0xdb}, make([]byte, 92)...)
	signed := append(header("abc", entry{1000, 4, 0, 0}), make([]byte, 5)...) // filled up to a multiple of eight
	return append(append(lead, signed...), header(arch+"\x00"+digest+"\x00\x00", entry{rpmArch, 6, 0, 1}, entry{rpmDigests, 8, uint32(len(arch)) + 1, 2})...)
}

// TestCheck makes up what is released for each of the six targets, as it should be and
// with one thing wrong.
func TestCheck(t *testing.T) {
	const flags = pe.IMAGE_FILE_EXECUTABLE_IMAGE
	good := map[string][]byte{
		"linux/amd64": elfOf(t, elf.EM_X86_64, elf.PT_LOAD, ""), "linux/arm64": elfOf(t, elf.EM_AARCH64, elf.PT_LOAD, ""),
		"darwin/amd64": machoOf(t, macho.CpuAmd64, macho.TypeExec), "darwin/arm64": machoOf(t, macho.CpuArm64, macho.TypeExec),
		"windows/amd64": peOf(t, pe.IMAGE_FILE_MACHINE_AMD64, flags), "windows/arm64": peOf(t, pe.IMAGE_FILE_MACHINE_ARM64, flags),
	}
	type made struct {
		target, program string
		mode            os.FileMode
		content         []byte
		deb, rpm        []byte
	}
	check := func(m made) error {
		r := &release{out: t.TempDir(), version: "1.2.3", nfpm: "nfpm"}
		base := "hardpoint-1.2.3-" + strings.ReplaceAll(m.target, "/", "-")
		files := map[string][]byte{base + ".deb": m.deb, base + ".rpm": m.rpm}
		pack, archive := tarGz, base+".tar.gz"
		if strings.HasPrefix(m.target, "windows") {
			pack, archive = zipped, base+".zip"
		}
		var err error
		files[archive], err = pack(base, []file{{"README.md", 0o644, []byte("text")}, {m.program, m.mode, m.content}}, time.Unix(0, 0))
		require.NoError(t, err)
		for name, b := range files {
			if b != nil {
				require.NoError(t, os.WriteFile(filepath.Join(r.out, name), b, 0o600))
			}
		}
		return r.check(m.target)
	}
	right := func(target string) made {
		m := made{target: target, program: "hardpoint", mode: 0o755, content: good[target]}
		system, arch, _ := strings.Cut(target, "/")
		switch system {
		case "windows":
			m.program = "hardpoint.exe"
		case "linux":
			m.deb, m.rpm = debOf(t, arch, m.content), rpmOf(t, map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch], m.content)
		}
		return m
	}
	for target := range good {
		require.NoError(t, check(right(target)), target)
	}

	other := func(target string) string {
		if arch, ok := strings.CutSuffix(target, "amd64"); ok {
			return arch + "arm64"
		}
		return strings.TrimSuffix(target, "arm64") + "amd64"
	}
	for target := range good {
		wrong := right(target)
		wrong.content = good[other(target)]
		require.ErrorContains(t, check(wrong), "the program is", target)
		wrong.content = []byte("#!/bin/sh\n")
		require.Error(t, check(wrong), target)
		wrong = right(target)
		wrong.mode = 0o644
		require.ErrorIs(t, check(wrong), errNotThere, target)
		wrong = right(target)
		if wrong.program += ".exe"; strings.HasPrefix(target, "windows") {
			wrong.program = "hardpoint"
		}
		require.ErrorIs(t, check(wrong), errNotThere, target)
	}
	for arch, c := range map[string]struct {
		machine elf.Machine
		rpm     string
	}{"amd64": {elf.EM_X86_64, "x86_64"}, "arm64": {elf.EM_AARCH64, "aarch64"}} {
		target := "linux/" + arch
		wrong := right(target)
		wrong.content = elfOf(t, c.machine, elf.PT_INTERP, "")
		require.ErrorContains(t, check(wrong), "names a dynamic linker")
		wrong.content = elfOf(t, c.machine, elf.PT_LOAD, "libc.so.6")
		require.ErrorContains(t, check(wrong), `needs ["libc.so.6"]`)

		before := right(other(target))
		wrong = right(target)
		wrong.deb = before.deb
		require.ErrorContains(t, check(wrong), ".deb: it does not say that its architecture is "+arch)
		wrong.deb = debOf(t, arch, before.content)
		require.ErrorContains(t, check(wrong), "its program is not that of the archive")
		wrong = right(target)
		wrong.rpm = before.rpm
		require.ErrorContains(t, check(wrong), "not "+c.rpm)
		wrong.rpm = rpmOf(t, c.rpm, before.content)
		require.ErrorContains(t, check(wrong), "the program of the archive is not in it")

		for _, m := range []made{{deb: []byte{}}, {rpm: []byte{}}, {deb: right(target).deb[:100]}, {rpm: right(target).rpm[:130]}} {
			broken := right(target)
			if m.deb != nil {
				broken.deb = m.deb
			} else {
				broken.rpm = m.rpm
			}
			require.ErrorContains(t, check(broken), "it is no ")
		}
		wrong = right(target)
		wrong.deb = nil
		require.ErrorIs(t, check(wrong), os.ErrNotExist)
	}
	wrong := right("darwin/arm64")
	wrong.content = machoOf(t, macho.CpuArm64, macho.TypeDylib)
	require.ErrorContains(t, check(wrong), "not an executable")
	wrong = right("windows/amd64")
	wrong.content = peOf(t, pe.IMAGE_FILE_MACHINE_AMD64, 0)
	require.ErrorContains(t, check(wrong), "not an executable")
	for _, target := range []string{"linux/riscv64", "plan9/amd64"} {
		require.ErrorContains(t, check(made{target: target, program: "hardpoint", mode: 0o755}), "nothing is known about binaries")
	}
}
