package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// said is what the chosen plugin of a kind says of itself.
type said struct {
	kind string
	plugin.Description
}

// fit refuses, by name, a plugin that needs a facet which the chosen one of
// another kind does not offer. All faults are told at once.
func fit(chosen ...said) error {
	var errs []error
	for _, who := range chosen {
		needs := who.Needs
		if raw := "storage." + storage.FacetRawLog; who.kind == "replication" && who.Publish == storage.Explicit.String() && !slices.Contains(needs, raw) {
			needs = append(slices.Clone(needs), raw) // who publishes late does it with that
		}
		for _, need := range needs {
			kind, facet, ok := strings.Cut(need, ".")
			i := slices.IndexFunc(chosen, func(s said) bool { return s.kind == kind })
			switch {
			case !ok || i < 0:
				errs = append(errs, fmt.Errorf("%s %s says that it needs %q, which this broker does not know: a need is a kind of plugin and a facet of it, as storage.RawLog", who.kind, who.Name, need))
			case !chosen[i].Has(facet):
				with := chosen[i]
				errs = append(errs, fmt.Errorf("%s %s needs the %s facet %s, %s %s offers %s; choose another one of the two",
					who.kind, who.Name, kind, facet, kind, with.Name, list(with.Facets)))
			}
		}
	}
	return errors.Join(errs...)
}

func list(facets []string) string {
	if len(facets) == 0 {
		return "none"
	}
	return strings.Join(facets, ", ")
}

// agree refuses a store whose facets are not those that it was chosen for.
func agree(says plugin.Description, c storage.Capabilities) error {
	want := slices.Sorted(slices.Values(says.Facets))
	if got := c.Facets(); !slices.Equal(got, want) {
		return fmt.Errorf("storage %s describes itself with the facets %s, but offers %s; this is a fault of the plugin", says.Name, list(want), list(got))
	}
	return nil
}

// holds refuses a store that does not take the largest message.
func holds(says plugin.Description, largest int64) error {
	if says.LargestRecord > 0 && says.LargestRecord < largest {
		return fmt.Errorf("storage %s takes records of at most %d bytes, maxMessageSize is %d; make that smaller, or choose another store", says.Name, says.LargestRecord, largest)
	}
	return nil
}
