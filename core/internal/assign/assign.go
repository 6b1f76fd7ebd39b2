package assign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/rarely"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// ErrUnknown: there is no allocator of that name. Test with errors.Is.
var ErrUnknown = errors.New("unknown allocator")

// Instance is an allocator in use.
type Instance struct {
	Plugin allocate.Allocator
	// Version tells it from its successor of the same name.
	Version string
}

// Params is what the behaviour needs beside the kernel.
type Params struct {
	Clients *client.Manager
	// Allocator gives the allocator of a plugin's name. ErrUnknown, at once, for a
	// name that there is not; other errors may pass. It may have to launch a
	// process and then waits until ctx ends; the launch goes on. It is called by
	// several goroutines.
	Allocator func(ctx context.Context, name string) (Instance, error)
	// NameServers are host:port each. nil, or none: this broker is alone.
	NameServers func() []string
	// Dialer may be nil, and may return nil.
	Dialer func() transport.Dialer
}

const (
	// maxWaiting bounds the requests that are being answered.
	maxWaiting = 512
	// answerWait bounds one: clients wait a second the first time.
	answerWait = 3 * time.Second
	// forwardWait bounds asking the owner, so that there is time to answer by what
	// it said last.
	forwardWait = 700 * time.Millisecond
	// allocateWait bounds the allocator, for the same reason.
	allocateWait = 500 * time.Millisecond
	// retryAfter is how long an allocator that failed is left alone.
	retryAfter = time.Second
	// answerGrace is how long an allocator may take to say that its time is over.
	answerGrace = 50 * time.Millisecond
	// maxLost bounds the calls of an allocator that take longer than anybody waits.
	maxLost = 4
)

// Fields of the request between brokers.
const (
	// fieldForwarded is the name of the broker that forwards: the receiver answers
	// by itself.
	fieldForwarded = "hardpointForwardedBy"
	// fieldKnown is the stamp of the assignment that it knows.
	fieldKnown = "hardpointKnown"
)

// Assign is the behaviour.
type Assign struct {
	k      *kernel.Kernel
	p      Params
	links  *rpc.Links
	routes routes
	slots  chan struct{}

	mu      sync.Mutex
	groups  map[string]*group
	lost    map[string]int // calls of an allocator that nobody waits for any more
	stopped bool
	wg      sync.WaitGroup

	refused, failed, panicked, away, unsaved rarely.Line

	generations, moves plugin.Counter
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel, p Params) *Assign {
	a := &Assign{k: k, p: p, slots: make(chan struct{}, maxWaiting), groups: map[string]*group{}, lost: map[string]int{}}
	a.generations = k.Meter.Counter("assignment_generations_total", "How often the queues of a group were shared anew by this broker.")
	a.moves = k.Meter.Counter("assignment_moves_total", "Queues that went from a member to another one by that.")
	a.links = rpc.NewLinks(func() transport.Dialer {
		if p.Dialer == nil {
			return nil
		}
		return p.Dialer()
	}, rpc.Options{})
	a.routes.k, a.routes.links, a.routes.servers = k, a.links, p.NameServers
	k.Handle(command.ReqQueryAssignment, a.query)
	k.Handle(command.ReqSetMessageRequestMode, a.setMode)
	k.Handle(command.ReqGetAllMessageRequestMode, a.allModes)
	a.serveAttributes()
	k.Hooks.OnRole(a.onRole)
	k.Hooks.OnGroupRemoved(a.forgetGroup)
	k.Hooks.OnTopicRemoved(a.forgetTopic)
	k.Hooks.OnStop(a.stop)
	return a
}

// onRole drops what is remembered: the catalog may hold newer assignments.
func (a *Assign) onRole(context.Context, replication.Role) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.groups)
	return nil
}

func (a *Assign) forgetGroup(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.groups, name)
}

func (a *Assign) forgetTopic(topic string) {
	a.routes.forget(topic)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.groups {
		g.forget(topic)
	}
}

func (a *Assign) stop(context.Context) error {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.links.Close()
	a.wg.Wait()
	return nil
}

// begin counts a request that is answered by a goroutine of its own.
func (a *Assign) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	select {
	case a.slots <- struct{}{}:
	default:
		return false
	}
	a.wg.Add(1)
	return true
}

func (a *Assign) end() {
	<-a.slots
	a.wg.Done()
}

// query serves QUERY_ASSIGNMENT (400). Another broker, a name server, or an
// allocator may have to be asked, so the connection's reader does not wait.
func (a *Assign) query(r *kernel.Request) {
	var q command.QueryAssignmentBody
	if err := command.DecodeBody(r.Frame.Body, &q); err != nil {
		r.Error(command.RespInvalidParameter, "the body of the request cannot be read: "+err.Error())
		return
	}
	if q.Topic == "" || q.ConsumerGroup == "" {
		r.Error(command.RespInvalidParameter, fmt.Sprintf("topic %.120q and consumerGroup %.120q must not be empty", q.Topic, q.ConsumerGroup))
		return
	}
	one := question{QueryAssignmentBody: q, forwarded: r.Header.ExtString(fieldForwarded) != "", known: r.Header.ExtString(fieldKnown)}
	if !a.begin() {
		r.Error(command.RespSystemBusy, "too many assignments are being asked for; try again")
		return
	}
	t, conn := r.Ticket(), r.Conn
	go func() {
		defer a.end()
		defer func() {
			if p := recover(); p != nil {
				err := conn.Recovered(p, command.ReqQueryAssignment)
				t.Reply(command.RespSystemError, func(w *command.Writer) { w.Remark(err.Error()) })
			}
		}()
		ctx, cancel := context.WithTimeout(a.k.Serving(), answerWait)
		defer cancel()
		out, note, err := a.answer(ctx, &one)
		var body []byte
		if err == nil {
			body, err = command.EncodeBody(out)
		}
		if err != nil {
			t.Reply(kernel.CodeOf(err), func(w *command.Writer) { w.Remark(err.Error()) })
			return
		}
		t.Reply(command.RespSuccess, func(w *command.Writer) {
			if note != "" {
				w.Remark(note)
			}
		}, body)
		a.save(&one)
	}()
}

// question is a request 400.
type question struct {
	command.QueryAssignmentBody
	forwarded bool   // by another broker
	known     string // the stamp of the assignment that it knows
	computed  *share // what may have to be saved
}

// answer answers a question. As in the reference, what cannot be answered is an
// empty answer, by which a client keeps what it has; note says why. Only plans
// have errors.
func (a *Assign) answer(ctx context.Context, q *question) (out command.QueryAssignmentResponse, note string, err error) {
	nothing := func(format string, args ...any) (command.QueryAssignmentResponse, string, error) {
		note := fmt.Sprintf(format, args...)
		if q.Plan != nil {
			return out, "", errors.New(note)
		}
		if n := a.refused.Due(a.k.Clock.Now()); n > 0 {
			a.k.Log.Warn("an assignment cannot be given; the client keeps what it has", "group", q.ConsumerGroup, "topic", q.Topic, "client", q.ClientID, "why", note, "such_since_last_said", n)
		}
		return out, note, nil
	}
	r, err := a.routes.of(ctx, q.Topic)
	if err != nil {
		return nothing("topic %s: %v", q.Topic, err)
	}
	if q.MessageModel == command.Broadcasting && q.Plan == nil {
		out.Assignments = make([]command.MessageQueueAssignment, len(r.queues))
		for i, x := range r.queues {
			out.Assignments[i] = pulled(x.Topic, x.Broker, x.ID)
		}
		return out, "", nil
	}
	if o := r.owner(q.ConsumerGroup); !q.forwarded && o.name != "" && o.name != a.k.Config().BrokerName {
		return a.forward(ctx, q, o, nothing)
	}
	if q.Plan != nil {
		out.Plan, err = a.plan(ctx, q, r)
		return out, "", err
	}
	s, table, note := a.assigned(ctx, q, r)
	if table == nil {
		return nothing("%s", note)
	}
	q.computed = s
	out.Assignments = table.of(q.Topic, q.ClientID)
	if out.Assignments == nil {
		note = fmt.Sprintf("%s is no member of group %s here; it sends no heartbeat to this broker, or has not yet", q.ClientID, q.ConsumerGroup)
	}
	if q.forwarded && q.known != table.stamp {
		out.Group = &table.GroupAssignment
	}
	return out, note, nil
}

func pulled(topic, broker string, id int32) command.MessageQueueAssignment {
	return command.MessageQueueAssignment{MessageQueue: command.MessageQueue{Topic: topic, BrokerName: broker, QueueID: id}, Mode: command.ModePull}
}
