package packaging

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tags of an RPM's header and a flag of its files (RPM's file format, version 4).
const (
	rpmName, rpmVersion, rpmArch                = 1000, 1001, 1022
	rpmPostInstall, rpmPreRemove, rpmPostRemove = 1024, 1025, 1026
	rpmModes, rpmDigests, rpmFlags              = 1030, 1035, 1037
	rpmDirIndexes, rpmBaseNames, rpmDirNames    = 1116, 1117, 1118

	rpmConfigNoReplace = 1 | 1<<4
)

// rpmHeader is what the header of an RPM says by tag: a list of strings, or of numbers.
type rpmHeader map[uint32]rpmValue

type rpmValue struct {
	texts   []string
	numbers []uint32
}

func (h rpmHeader) text(tag uint32) string { return h[tag].texts[0] }

// rpmFile is a file of an RPM.
type rpmFile struct {
	mode   fs.FileMode // permissions alone
	flags  uint32
	sha256 string
}

// files are the files by path.
func (h rpmHeader) files() map[string]rpmFile {
	out := map[string]rpmFile{}
	for i, base := range h[rpmBaseNames].texts {
		dir := h[rpmDirNames].texts[h[rpmDirIndexes].numbers[i]]
		out[dir+base] = rpmFile{fs.FileMode(h[rpmModes].numbers[i]).Perm(), h[rpmFlags].numbers[i], h[rpmDigests].texts[i]}
	}
	return out
}

// readRPM reads the header of an RPM: behind a lead of 96 bytes comes a header with
// signatures, at a multiple of eight the one that is wanted.
func readRPM(t *testing.T, path string) rpmHeader {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, []byte{0xed, 0xab, 0xee, 0xdb}, b[:4], "the mark of an RPM")
	_, signed := rpmHeaderAt(t, b[96:])
	h, _ := rpmHeaderAt(t, b[96+(signed+7)/8*8:])
	return h
}

// rpmHeaderAt reads a header and tells its length.
func rpmHeaderAt(t *testing.T, b []byte) (rpmHeader, int) {
	t.Helper()
	require.Equal(t, []byte{0x8e, 0xad, 0xe8}, b[:3], "the mark of a header")
	entries, size := int(binary.BigEndian.Uint32(b[8:])), int(binary.BigEndian.Uint32(b[12:]))
	data := b[16+16*entries:][:size]
	h := rpmHeader{}
	for i := range entries {
		e := b[16+16*i:]
		tag, kind, count := binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:]), int(binary.BigEndian.Uint32(e[12:]))
		at := data[binary.BigEndian.Uint32(e[8:]):]
		var v rpmValue
		for j := range count {
			switch kind {
			case 3:
				v.numbers = append(v.numbers, uint32(binary.BigEndian.Uint16(at[2*j:])))
			case 4:
				v.numbers = append(v.numbers, binary.BigEndian.Uint32(at[4*j:]))
			case 6, 8, 9:
				end := bytes.IndexByte(at, 0)
				v.texts, at = append(v.texts, string(at[:end])), at[end+1:]
			}
		}
		h[tag] = v
	}
	return h, 16 + 16*entries + size
}

// String names the file's permissions and kind in failures.
func (f rpmFile) String() string { return fmt.Sprintf("%v flags %#x", f.mode, f.flags) }
