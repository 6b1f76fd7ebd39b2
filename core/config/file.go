package config

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// entry is one key as written in a source, before it is looked up.
type entry struct {
	name  string
	value any // string for what is text in the source; []any of such; bool, int64, float64 under plugins
	src   Source
}

// Format is the syntax of a configuration file.
type Format string

// The formats; FormatOf derives one from a file's name.
const (
	FormatYAML       Format = "yaml"
	FormatTOML       Format = "toml"
	FormatProperties Format = "properties" // RocketMQ's broker.conf and namesrv.conf
)

// FormatOf tells the format by the end of the file's name: .yaml, .yml,
// .toml, .conf, .properties.
func FormatOf(file string) (Format, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".yaml", ".yml":
		return FormatYAML, nil
	case ".toml":
		return FormatTOML, nil
	case ".conf", ".properties":
		return FormatProperties, nil
	}
	return "", &Error{Kind: ErrFile, Source: Source{Kind: FromFile, Name: file},
		Reason: "the end of the name tells the format: .yaml, .yml, .toml, or .conf and .properties for RocketMQ's form"}
}

// largestFile bounds what is read, so that a wrong path (a segment, a device)
// is an error and not a wait.
const largestFile = 1 << 20

var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}

// readEntries reads the text of a file into entries with their lines. Entries
// that could be read are returned beside the faults.
func readEntries(f Format, b []byte, src Source) ([]entry, []*Error) {
	b = bytes.TrimPrefix(b, byteOrderMark)
	if len(b) > largestFile {
		return nil, []*Error{{Kind: ErrFile, Source: src, Reason: fmt.Sprintf("it is longer than %d bytes and so hardly a configuration", largestFile)}}
	}
	if errs := checkEncoding(b, src); errs != nil {
		return nil, errs
	}
	switch f {
	case FormatYAML:
		return readYAML(b, src)
	case FormatTOML:
		return readTOML(b, src)
	default:
		return readProperties(b, src)
	}
}

// checkEncoding reports every line that is not UTF-8, or that holds a NUL.
func checkEncoding(b []byte, src Source) []*Error {
	var errs []*Error
	line := 0
	for l := range bytes.Lines(b) {
		line++
		at := src
		at.Line = line
		switch {
		case !utf8.Valid(l):
			errs = append(errs, &Error{Kind: ErrEncoding, Source: at, Reason: "write the file in UTF-8"})
		case bytes.IndexByte(l, 0) >= 0:
			errs = append(errs, &Error{Kind: ErrSyntax, Source: at, Reason: "a NUL byte; is this a text file?"})
		}
		if len(errs) == 20 {
			break
		}
	}
	return errs
}
