package lint

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	snippet = regexp.MustCompile("(?ms)^<!-- code of (\\S+) -->\n```go\n(.*?)^```$")
	clause  = regexp.MustCompile(`\Apackage \w+\n\n`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
)

// checkDoc finds links of a Markdown file that lead nowhere, and Go code in it
// that is not in the file that it is said to be of. read gives the content of a
// file of the repository, or of a folder nothing; it fails for what is not there.
func checkDoc(name, text string, read func(name string) (string, error)) []string {
	var found []string
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		u, err := url.Parse(m[1])
		if err != nil || u.Scheme != "" || u.Path == "" {
			continue // outside, or a place on the same page
		}
		if _, err := read(path.Join(path.Dir(name), u.Path)); err != nil {
			found = append(found, fmt.Sprintf("%s links to %s: %v", name, m[1], err))
		}
	}
	for _, m := range snippet.FindAllStringSubmatch(text, -1) {
		source, err := read(m[1])
		if err != nil {
			found = append(found, fmt.Sprintf("%s shows code of %s: %v", name, m[1], err))
			continue
		}
		code := clause.ReplaceAllString(m[2], "")
		if !strings.Contains(source, code) {
			first, _, _ := strings.Cut(code, "\n")
			found = append(found, fmt.Sprintf("%s shows code of %s that is not there word for word, from %q on: copy it again", name, m[1], first))
		}
	}
	return found
}
