package hosttest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Tmpfs mounts a small file system that can really be filled and returns its
// root; options are those of mount(8), such as "size=1m". A user without the
// right to mount gets it in a user namespace of a child process, whose view of
// the files /proc shows.
func Tmpfs(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	if err == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
		t.Fatal(err)
	}
	seen, nsErr := mountInNamespace(t, dir, options)
	if nsErr != nil {
		Refused(t, "no small file system: mount: %v; in a user namespace: %v", err, nsErr)
	}
	return seen
}

func mountInNamespace(t testing.TB, dir, options string) (string, error) {
	t.Helper()
	// The shell holds the namespace until its standard input ends.
	cmd := exec.Command(Program(t, "sh", "which mounts"), "-c", `mount -t tmpfs -o "$2" tmpfs "$1" && echo mounted && read -r _`, "sh", dir, options)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	end := func() error {
		_ = stdin.Close()
		return cmd.Wait()
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return "", fmt.Errorf("%w: %s", end(), bytes.TrimSpace(stderr.Bytes()))
	}
	t.Cleanup(func() { _ = end() }) // read -r at its end says 1
	return fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, dir), nil
}
