package replicationtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(_ testing.TB, p storage.Params) storage.Store {
	return storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{})
}

func TestConformance(t *testing.T) {
	replicationtest.Run(t, replicationtest.Harness{
		Factory: replicationtest.ScriptedFactory(nil), NewStore: newStore,
		Lacks: replicationtest.Lacks{Members: true, Sync: true},
	})
}

// transcript is a sink that writes down what it is told.
type transcript struct {
	strings.Builder
	names map[*storage.Pending]string
}

func (s *transcript) Done(p *storage.Pending, from, to int, o replication.Outcome, err error) {
	fmt.Fprintf(s, "%s[%d,%d) %v", s.names[p], from, to, o)
	if err != nil {
		fmt.Fprintf(s, ": %v", err)
	}
	s.WriteByte('\n')
}

// TestScripts runs the scripts in testdata: besides the commands of Scripted.Do
// there are "append NAME [GROUPS]", "follow [GROUPS]" and "log".
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		out := &transcript{names: map[*storage.Pending]string{}}
		p := storage.Params{Settings: plugin.Settings{}.WithDefaults(), Segment: 1 << 20, Publish: storage.Explicit}
		p.Events.Truncated = func(to message.Position) { fmt.Fprintf(out, "truncated to %d\n", to) }
		st := newStore(t, p)
		require.NoError(t, st.Start(t.Context()))
		var s *replicationtest.Scripted
		rep, err := replicationtest.ScriptedFactory(func(x *replicationtest.Scripted) { s = x }).Build(t.Context(), replication.Params{
			Store: st, Sequencer: storage.NewSequencer(nil),
			OnRole: func(_ context.Context, r replication.Role) error {
				fmt.Fprintf(out, "role: %v of term %d, leader %q, foreign %v, read-only %q\n", r.Kind, r.Term, r.Leader, r.Foreign, r.ReadOnly)
				return nil
			},
		}, nil)
		require.NoError(t, err)
		require.NoError(t, rep.Start(t.Context()))
		out.Reset()
		w := storagetest.NewWriter(message.IndexRules{})
		pending := func(n int) *storage.Pending {
			p := &storage.Pending{}
			for range n {
				w.Add(p, storagetest.Message{Queue: message.Queue{Topic: "T"}, Body: []byte("body")})
			}
			return p
		}
		line := func(line string) {
			f := strings.Fields(line)
			n := 1
			switch f[0] {
			case "append":
				if len(f) > 2 {
					_, err := fmt.Sscan(f[2], &n)
					require.NoError(t, err)
				}
				p := pending(n)
				out.names[p] = f[1]
				if err := s.Append(t.Context(), p, out); err != nil {
					fmt.Fprintf(out, "%s: error: %v\n", f[1], err)
				}
			case "follow":
				require.NoError(t, s.Follow(t.Context(), pending(n)))
			case "barrier?":
				fmt.Fprintf(out, "barrier: %v\n", s.Barrier(t.Context()))
			case "log":
				var a storage.OffsetAnswers
				require.NoError(t, st.Offsets(t.Context(), []storage.OffsetQuery{{Queue: message.Queue{Topic: "T"}}}, &a))
				x := st.State()
				size := message.Position(w.Size(storagetest.Message{Queue: message.Queue{Topic: "T"}, Body: []byte("body")}))
				fmt.Fprintf(out, "%d published, next offset %d, tail behind %d\n", x.Published/size, a.Answers[0].Max, x.Tail/size)
			default:
				said, err := s.Do(t.Context(), line)
				if err != nil {
					said = "error: " + err.Error()
				}
				if said != "" {
					fmt.Fprintln(out, said)
				}
			}
		}
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
			out.Reset()
			for l := range strings.Lines(d.Input) {
				line(strings.TrimSpace(l))
			}
			return out.String()
		})
		require.NoError(t, rep.Shutdown(t.Context()))
		require.NoError(t, st.Shutdown(t.Context()))
	})
}
