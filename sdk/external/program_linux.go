package external

import (
	"os"
	"os/exec"
	"syscall"
)

var errNoFormat error = syscall.ENOEXEC

// arm makes cmd execute the very file that was hashed: whoever puts another one
// under its name meanwhile changes nothing. A script is left to its name, because
// its interpreter looks for what lies beside it.
func (p *program) arm(cmd *exec.Cmd) {
	if p.file == nil {
		return
	}
	head := make([]byte, 2)
	if _, err := p.file.ReadAt(head, 0); err != nil || string(head) == "#!" {
		return
	}
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return
	}
	cmd.ExtraFiles = []*os.File{p.file} // descriptor 3 of the child
	cmd.Path = "/proc/self/fd/3"
}
