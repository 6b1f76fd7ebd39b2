package replicationtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/hardpointmq/hardpoint/core/replication"
)

// Do obeys one line of a text script and says what it did. The commands are
//
//	hold | release                   keep back what is appended, let it go
//	publish [N]                      the N oldest held [all]
//	answer OUTCOME [N]               tell an outcome, leave the fate open
//	truncate [OUTCOME]               cut off what is not published [Unknown]
//	drop N | refuse N ERROR          the next N appends
//	lose LEADER [foreign]            another node leads
//	win [keep]                       a new office
//	read-only [WHY]                  refuse writes
//	barrier ok | ERROR               what Barrier returns
//	role | held
//
// ERROR is busy, fenced, not-leader, read-only or any text; OUTCOME is a
// constant's name.
func (s *Scripted) Do(ctx context.Context, line string) (string, error) {
	f := strings.Fields(line)
	if len(f) == 0 {
		return "", nil
	}
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	number := func(i int) (int, error) {
		if i >= len(f) {
			return -1, nil
		}
		n, err := strconv.Atoi(f[i])
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		return n, nil
	}
	switch f[0] {
	case "hold":
		s.Hold()
	case "release":
		return "", s.Release(ctx)
	case "publish":
		n, err := number(1)
		if err != nil {
			return "", err
		}
		return "", s.Publish(ctx, n)
	case "answer":
		o, err := outcome(arg(1))
		if err != nil {
			return "", err
		}
		n, err := number(2)
		if err != nil {
			return "", err
		}
		s.Answer(n, o)
	case "truncate":
		o := replication.Unknown
		if len(f) > 1 {
			var err error
			if o, err = outcome(f[1]); err != nil {
				return "", err
			}
		}
		return "", s.Truncate(ctx, o)
	case "drop", "refuse":
		n, err := number(1)
		if err != nil {
			return "", err
		}
		if f[0] == "drop" {
			s.Drop(n)
			return "", nil
		}
		s.Refuse(n, failure(strings.Join(f[min(2, len(f)):], " ")))
	case "lose":
		return "", s.Lose(ctx, arg(1), arg(2) == "foreign")
	case "win":
		return "", s.Win(ctx, arg(1) == "keep")
	case "read-only":
		return "", s.ReadOnly(ctx, strings.Join(f[1:], " "))
	case "barrier":
		if arg(1) == "ok" {
			s.FailBarrier(nil)
		} else {
			s.FailBarrier(failure(strings.Join(f[1:], " ")))
		}
	case "role":
		r := s.Role()
		return strings.TrimSpace(fmt.Sprintf("%v of term %d %s", r.Kind, r.Term, r.ReadOnly)), nil
	case "held":
		return strconv.Itoa(s.Held()), nil
	default:
		return "", fmt.Errorf("the scripted replicator knows no command %q", f[0])
	}
	return "", nil
}

func outcome(name string) (replication.Outcome, error) {
	for o := replication.Stored; o <= replication.Unknown; o++ {
		if o.String() == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("%q is no outcome", name)
}

func failure(text string) error {
	switch text {
	case "busy":
		return replication.ErrBusy
	case "fenced":
		return replication.ErrFenced
	case "not-leader":
		return replication.ErrNotLeader
	case "read-only":
		return replication.ErrReadOnly
	}
	return fmt.Errorf("%w: %s", ErrScripted, text)
}
