package lint

import (
	"fmt"
	"regexp"
	"strings"
)

// named is how a document names a test: `PACKAGE: TestName/case/case`.
var named = regexp.MustCompile("`([a-z][\\w/.-]*): (Test\\w+)((?:/[\\w.-]+)*)`")

// checkNamed finds tests that a document names and that are not there. tests gives the
// text of the tests of a package; it fails for what is none. Names of cases may be put
// together in the test: each of their words has to be in its package.
func checkNamed(name, text string, tests func(dir string) (string, error)) []string {
	var found []string
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		source, err := tests(m[1])
		if err != nil {
			found = append(found, fmt.Sprintf("%s names a test of %s: %v", name, m[1], err))
			continue
		}
		if !strings.Contains(source, "func "+m[2]+"(") {
			found = append(found, fmt.Sprintf("%s names %s of %s, which has no such test", name, m[2], m[1]))
			continue
		}
		for _, word := range strings.FieldsFunc(m[3], func(r rune) bool { return r == '/' || r == '-' }) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(source) {
				found = append(found, fmt.Sprintf("%s names %s%s of %s, where nothing is called %s", name, m[2], m[3], m[1], word))
			}
		}
	}
	return found
}

// checkDurability looks whether the table of docs/durability.md has a row for each
// store in each form and mode, and a test in each cell.
func checkDurability(text string, stores []string) []string {
	var found []string
	rows := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 6 || strings.Contains(line, "---") || strings.Contains(line, "| Store |") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		row := strings.Join(cells[:3], ", ")
		modes := []string{cells[2]}
		if cells[2] == "both" {
			modes = []string{"ASYNC_FLUSH", "SYNC_FLUSH"}
		}
		for _, mode := range modes {
			rows[cells[0]+", "+cells[1]+", "+mode] = true
		}
		for i, cell := range cells[3:] {
			none := i == 1 && cells[1] == "in process" // there is no such process
			if none != (cell == "—") || !none && !named.MatchString(cell) {
				found = append(found, fmt.Sprintf("docs/durability.md: the cell %q of %s names no test", cell, row))
			}
		}
	}
	for _, store := range stores {
		for _, form := range []string{"in process", "process"} {
			for _, mode := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
				if row := store + ", " + form + ", " + mode; !rows[row] {
					found = append(found, "docs/durability.md has no row for "+row)
				}
			}
		}
	}
	return found
}
