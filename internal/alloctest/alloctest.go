// Package alloctest runs allocators by scripts: testdata of plugins/allocate.
package alloctest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Run runs a script. Its one command is
//
//	allocate queues=N | brokers=(NAME[/ZONE],…) [each=N]  members=N | ids=(ID[/ZONE[/WEIGHT]],…)  [again] [why]
//
// with the plugin's configuration as JSON below it. again gives every member what
// it had after the last command; then the number of queues that moved is printed,
// too. why prints the reasons.
func Run(t *testing.T, file string, f allocate.Factory) {
	t.Helper()
	had := map[string][]allocate.Queue{}
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		r := request(t, d)
		owned := 0
		for i := range r.Members {
			m := &r.Members[i]
			for _, q := range had[m.ClientID] {
				if n := slices.Index(r.Queues, q); n >= 0 && d.HasArg("again") {
					m.Owned = append(m.Owned, n)
					owned++
				}
			}
		}
		alloc, err := f.Build(t.Context(), allocate.Params{}, plugin.Raw(d.Input))
		if err != nil {
			return err.Error() + "\n"
		}
		a, err := alloc.Allocate(t.Context(), r)
		if err != nil {
			return err.Error() + "\n"
		}
		clear(had)
		kept := 0
		for i, o := range a.Owner {
			if o >= 0 {
				m := &r.Members[o]
				had[m.ClientID] = append(had[m.ClientID], r.Queues[i])
				if slices.Contains(m.Owned, i) {
					kept++
				}
			}
		}
		out := allocatetest.Format(r, a)
		if d.HasArg("again") {
			out += fmt.Sprintf("moved: %d of %d\n", owned-kept, owned)
		}
		if d.HasArg("why") {
			for i, q := range r.Queues {
				out += fmt.Sprintf("%s/%d: %s\n", q.Broker, q.ID, a.Why[i])
			}
		}
		return out
	})
}

func request(t *testing.T, d *datadriven.TestData) *allocate.Request {
	var queues, members int
	each := 4
	d.MaybeScanArgs(t, "queues", &queues)
	d.MaybeScanArgs(t, "members", &members)
	d.MaybeScanArgs(t, "each", &each)
	r := allocatetest.Make(queues, members)
	r.Group = "g"
	for _, arg := range d.CmdArgs {
		for _, v := range arg.Vals {
			part := strings.Split(v, "/")
			switch arg.Key {
			case "brokers":
				for i := range each {
					q := allocate.Queue{Topic: "t", Broker: part[0], ID: int32(i)}
					if len(part) > 1 {
						q.Zone = part[1]
					}
					r.Queues = append(r.Queues, q)
				}
			case "ids":
				m := allocate.Member{ClientID: part[0]}
				if len(part) > 1 {
					m.Zone = part[1]
				}
				if len(part) > 2 {
					w, err := strconv.ParseUint(part[2], 10, 32)
					if err != nil {
						d.Fatalf(t, "%s: %v", v, err)
					}
					m.Weight = uint32(w)
				}
				r.Members = append(r.Members, m)
			}
		}
	}
	slices.SortStableFunc(r.Queues, func(a, b allocate.Queue) int { return strings.Compare(a.Broker, b.Broker) })
	return r
}
