// Package apachetest unpacks, for tests of either module, the stores that Apache's
// brokers wrote: plugins/storage/commitlog/testdata/apache, whose README says how.
package apachetest

import (
	"strings"
	"testing"

	"github.com/hardpointmq/hardpoint/internal/tartest"
)

// Unpack extracts what is below the one folder of an archive into dir.
func Unpack(t testing.TB, archive, dir string) {
	t.Helper()
	tartest.Unpack(t, archive, dir, func(name string) string {
		_, rest, _ := strings.Cut(name, "/")
		if strings.HasPrefix(rest, "timer") { // none of ours, and large
			return ""
		}
		return rest
	})
}
