package external

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// program is the file that is about to be started.
type program struct {
	path string
	file *os.File // of a pinned one: what was hashed; else nil
}

// noFile are the kinds of what has a name and is no file; reading some of them
// does not end.
const noFile = fs.ModeNamedPipe | fs.ModeSocket | fs.ModeDevice

// openProgram finds the program of a command, and holds it against its checksum.
func openProgram(c Command) (*program, error) {
	path, err := exec.LookPath(c.Path)
	if err != nil {
		return nil, diagnose(c.Path, err)
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&noFile != 0 {
		return nil, fmt.Errorf("%s is no file, its mode is %v", path, info.Mode())
	}
	p := &program{path: path}
	if c.Checksum == "" {
		return p, nil
	}
	want, err := parseChecksum(c.Checksum)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("its checksum is pinned, and the program cannot be read: %w", err)
	}
	h := sha256.New()
	if _, err = io.Copy(h, f); err != nil {
		err = fmt.Errorf("its checksum is pinned, and the program cannot be read: %w", err)
	} else if got := h.Sum(nil); !bytes.Equal(got, want) {
		err = fmt.Errorf("the checksum of %s is wrong: expected SHA-256 %x, found %x; it is another program than the one that was pinned, and was not started: put that one back, or pin this one if it is the right one",
			path, want, got)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	p.file = f
	return p, nil
}

// parseChecksum reads a pinned checksum. Its errors match plugin.ErrConfig.
func parseChecksum(s string) ([]byte, error) {
	b, err := hex.DecodeString(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "sha256:"))
	if err == nil && len(b) == sha256.Size {
		return b, nil
	}
	return nil, fmt.Errorf("%w: the checksum %q is none: write the SHA-256 of the program as %d hexadecimal digits, as sha256sum prints it", plugin.ErrConfig, s, 2*sha256.Size)
}

func (p *program) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}

// script tells whether the first line names an interpreter, and which.
func script(head []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return "", false
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	// As the kernel takes it apart: what Windows ends lines with belongs to the name.
	fields := strings.FieldsFunc(string(line), func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) == 0 {
		return "", true
	}
	return fields[0], true
}

// headOf reads the beginning of a file, as much as there is.
func headOf(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 256)
	n, _ := io.ReadFull(f, b)
	return b[:n]
}

// diagnose says in words why a program could not be started at all. The error
// matches err.
func diagnose(path string, err error) error {
	info, statErr := os.Stat(path)
	switch {
	case !strings.ContainsRune(path, os.PathSeparator) && errors.Is(err, exec.ErrNotFound):
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return fmt.Errorf("there is no program %q in PATH; the file in the working directory is %s: %w", path, "."+string(os.PathSeparator)+path, exec.ErrNotFound)
		}
		return fmt.Errorf("there is no program %q in PATH: give its path, or install it: %w", path, err)
	case errors.Is(statErr, fs.ErrNotExist):
		return fmt.Errorf("there is no file %s: %w", path, err)
	case statErr != nil:
		return fmt.Errorf("%s cannot be read: %w", path, statErr)
	case info.IsDir():
		return fmt.Errorf("%s is a directory, not a program: %w", path, err)
	case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable, its mode is %v; chmod +x makes it so: %w", path, info.Mode(), err)
	}
	head := headOf(path)
	interpreter, isScript := script(head)
	switch {
	case isScript && interpreter == "":
		return fmt.Errorf("%s is a script whose first line names no interpreter (#!…): %w", path, err)
	case isScript && strings.HasSuffix(interpreter, "\r"):
		return fmt.Errorf("the first line of %s ends as lines do on Windows (CR LF), so that its interpreter is looked for under the name %q: write it with LF alone: %w", path, interpreter, err)
	case isScript:
		if _, statErr := os.Stat(interpreter); statErr != nil {
			return fmt.Errorf("%s is a script for %s, which this machine does not have: %w", path, interpreter, err)
		}
	case len(head) == 0:
		return fmt.Errorf("%s is empty or cannot be read: %w", path, err)
	case formatOf(head) != "":
		if f := formatOf(head); f != formatHere() {
			return fmt.Errorf("%s is built for another machine: found %s, this one needs %s: %w", path, f, formatHere(), err)
		}
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf#!")):
		return fmt.Errorf("%s begins with a byte order mark, so that its first line names no interpreter (#!…): write it as UTF-8 without one: %w", path, err)
	case errors.Is(err, errNoFormat):
		return fmt.Errorf("%s is neither a program for %s/%s nor a script whose first line names its interpreter (#!…): %w", path, runtime.GOOS, runtime.GOARCH, err)
	}
	return fmt.Errorf("%s cannot be executed: %w", path, err)
}

// formatOf tells for what a binary is built, "" of something else.
func formatOf(head []byte) string {
	switch {
	case len(head) >= 20 && bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		var order binary.ByteOrder = binary.LittleEndian
		if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
			order = binary.BigEndian
		}
		bits := "32-bit"
		if elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64 {
			bits = "64-bit"
		}
		machine := strings.ToLower(strings.TrimPrefix(elf.Machine(order.Uint16(head[18:])).String(), "EM_"))
		return fmt.Sprintf("an ELF program (Linux, BSD) for %s, %s", machine, bits)
	case len(head) >= 4 && (binary.LittleEndian.Uint32(head) == 0xfeedfacf || binary.BigEndian.Uint32(head) == 0xcafebabe):
		return "a Mach-O program (macOS)"
	case bytes.HasPrefix(head, []byte("MZ")):
		return "a PE program (Windows)"
	}
	return ""
}

// formatHere is that of this very program.
func formatHere() string {
	if self, err := os.Executable(); err == nil {
		if f := formatOf(headOf(self)); f != "" {
			return f
		}
	}
	return "a program for " + runtime.GOOS + "/" + runtime.GOARCH
}
