package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"
)

// file is one of an archive; its name has slashes.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// beside is what lies beside the binary in every archive: licence, README, an example
// of each configuration, completion scripts and manual pages.
func (r *release) beside() ([]file, error) {
	var files []file
	for _, name := range []string{"LICENSE", "README.md"} {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, b})
	}
	for shell, name := range map[string]string{"bash": "hardpoint.bash", "zsh": "_hardpoint", "fish": "hardpoint.fish", "powershell": "hardpoint.ps1"} {
		script, err := exec.Command(r.host, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion script of %s: %w", shell, err)
		}
		files = append(files, file{"completions/" + name, 0o644, script})
	}
	man := filepath.Join(r.work, "man")
	c := exec.Command(r.host, "man", man)
	c.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.epoch.Unix()))
	if err := output(c); err != nil {
		return nil, err
	}
	for to, from := range map[string]string{"man": man, "etc": "packaging/etc"} {
		more, err := folder(to, from)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// folder is the files of a folder that has no others.
func folder(to, from string) ([]file, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Join(to, e.Name()), 0o644, b})
	}
	return files, nil
}

// tarGz packs files into one folder, for every user.
func tarGz(dir string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: path.Join(dir, f.name), Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(t.Close(), z.Close())
	return b.Bytes(), err
}

// zipped packs files into one folder.
func zipped(dir string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(dir, f.name), Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// gzipped compresses without a name and a time.
func gzipped(content []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(content) // into memory
	_ = z.Close()
	return b.Bytes()
}
