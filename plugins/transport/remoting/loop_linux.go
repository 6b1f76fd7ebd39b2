package remoting

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hardpointmq/hardpoint/core/transport"
)

const (
	// maxLoops bounds how many goroutines read at the same time.
	maxLoops = 8
	// roundEvents is how many peers one round serves at most.
	roundEvents = 256
	// roundReads is how often a peer that has more is read in one round, so that
	// one turn of the log takes it all.
	roundReads = 4
	// stall is how long a session may keep the loop before another goroutine
	// takes it over. It is seen after once to twice that time.
	stall = 5 * time.Millisecond
	// strainRounds is for how many rounds after two such takeovers each peer gets a
	// goroutine of its own.
	strainRounds = 64
	// A peer that sends this many bytes at once has many requests under way: the
	// answers just written bring the next within microseconds, sooner than a
	// goroutine can be put to sleep and woken. After such a round the loop looks
	// up to briskLooks times, about 15 µs, before it waits.
	briskBytes, briskLooks = 16 << 10, 50
)

// loop reads all its peers from one goroutine, so that what many connections
// bring at the same time is one turn of the log and wakes one goroutine. Its
// epoll descriptor waits in Go's poller; the sockets are not in there.
//
// Whoever runs the loop has its role. A session may block on the log: then a
// watchdog takes the role away and gives it to a new goroutine; the old one
// finishes the peer it was with and ends. When it happens again soon (strain)
// each peer is read by a goroutine of its own.
type loop struct {
	ep    int
	file  *os.File
	rc    syscall.RawConn
	fill  func(uintptr) bool // l.wait, made once
	apart bool               // always under strain: every call of a session takes long
	wg    sync.WaitGroup

	mu    sync.Mutex
	peers []*peer // by descriptor

	// busy is the number of the step under way, 0 while the holder of the role
	// touches what follows. Who changes it from a step to 0 has the role.
	busy   atomic.Int64
	seen   atomic.Int64 // busy at the watchdog's last look
	active atomic.Bool  // a round is under way
	watch  *time.Timer

	// The rest belongs to the role.
	steps  int64
	strain int  // rounds that are left of it
	rounds int  // since the last takeover
	brisk  bool // this round
	events [roundEvents]unix.EpollEvent
	ready  int                 // of events
	queue  []*peer             // this round's
	head   int                 // of queue
	again  []*peer             // next round's: they have more
	due    []transport.Handler // whose Settle is due
}

func startLoops(apart bool) ([]*loop, error) {
	n := min(max(1, runtime.GOMAXPROCS(0)/2), maxLoops)
	var all []*loop
	for range n {
		l, err := newLoop(apart)
		if err != nil {
			stopLoops(all)
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// stopLoops ends loops without peers.
func stopLoops(all []*loop) {
	for _, l := range all {
		_ = l.file.Close()
		l.wg.Wait()
		l.watch.Stop()
	}
}

func newLoop(apart bool) (*loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll descriptor: %w", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil { // or Go's poller would not take it
		_ = unix.Close(ep)
		return nil, fmt.Errorf("make an epoll descriptor: %w", err)
	}
	l := &loop{apart: apart, ep: ep, file: os.NewFile(uintptr(ep), "epoll"), rounds: strainRounds}
	if l.rc, err = l.file.SyscallConn(); err != nil {
		_ = l.file.Close()
		return nil, fmt.Errorf("make an epoll descriptor: %w", err)
	}
	l.fill = l.wait
	l.watch = time.AfterFunc(time.Hour, l.check)
	l.watch.Stop()
	l.wg.Add(1)
	go l.run()
	return l, nil
}

// run has the role until the loop is closed or the role is taken away.
func (l *loop) run() {
	defer l.wg.Done()
	for {
		if !l.round() {
			return
		}
		if !l.poll() {
			return
		}
	}
}

// poll waits until peers are ready; false when the loop is closed.
func (l *loop) poll() bool {
	l.queue, l.again, l.head = l.again, l.queue[:0], 0
	if len(l.queue) > 0 {
		l.wait(0) // there is something to do whether or not others are ready
	} else if !l.look() {
		if err := l.rc.Read(l.fill); err != nil {
			return false
		}
	}
	for i := range l.ready {
		e := &l.events[i]
		l.mu.Lock()
		p := l.peers[e.Fd]
		l.mu.Unlock()
		if p == nil {
			continue // it ended meanwhile
		}
		s := p.sock
		if e.Events&unix.EPOLLOUT != 0 && s.behind.Load() {
			p.goOnWriting()
		}
		if e.Events&^unix.EPOLLOUT == 0 {
			continue
		}
		if e.Events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0 {
			s.ending.Store(true)
		}
		if s.take() {
			l.queue = append(l.queue, p)
		}
	}
	return true
}

// look is true when peers are ready soon after a brisk round.
func (l *loop) look() bool {
	if !l.brisk {
		return false
	}
	l.brisk = false
	for range briskLooks {
		if l.wait(0) {
			return true
		}
	}
	return false
}

// wait is one epoll_wait that does not wait; false when nobody is ready.
func (l *loop) wait(uintptr) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.ep), uintptr(unsafe.Pointer(&l.events[0])), roundEvents, 0, 0, 0)
	l.ready = int(n)
	if errno != 0 { // EINTR
		l.ready = 0
	}
	return l.ready > 0
}

// round steps all peers of the queue, then settles. It returns false when the
// role was taken away.
func (l *loop) round() bool {
	if l.head == len(l.queue) && len(l.due) == 0 {
		l.active.Store(false)
		return true
	}
	l.active.Store(true)
	l.watch.Reset(stall)
	l.rounds++
	strained := l.apart || l.strain > 0
	if l.strain > 0 {
		l.strain--
	}
	for l.head < len(l.queue) {
		p := l.queue[l.head]
		l.queue[l.head] = nil
		l.head++
		if strained {
			l.wg.Add(1)
			go l.alone(p)
			continue
		}
		n := l.begin()
		more, arrived, err := p.step()
		if !l.end(n) {
			p.carryOn(more, arrived, err)
			return false
		}
		if arrived {
			l.settleLater(p.h)
			l.brisk = l.brisk || p.sock.got >= briskBytes
		}
		switch {
		case err != nil:
			go p.finish(err)
		case !more && p.sock.leave():
		case p.sock.reads < roundReads:
			p.sock.reads++
			l.queue = append(l.queue, p)
			continue
		default:
			l.again = append(l.again, p)
		}
		p.sock.reads = 0
	}
	for len(l.due) > 0 {
		last := len(l.due) - 1
		h := l.due[last]
		l.due[last], l.due = nil, l.due[:last]
		n := l.begin()
		h.Settle()
		if !l.end(n) {
			return false
		}
	}
	l.active.Store(false)
	l.watch.Stop()
	return true
}

// begin and end enclose what may block. end returns false when the role is gone.
func (l *loop) begin() int64 {
	l.steps++
	n := l.steps // from here on it may be somebody else's
	l.busy.Store(n)
	return n
}

func (l *loop) end(step int64) bool { return l.busy.CompareAndSwap(step, 0) }

func (l *loop) settleLater(h transport.Handler) {
	if !slices.Contains(l.due, h) {
		l.due = append(l.due, h)
	}
}

// check is the watchdog.
func (l *loop) check() {
	n := l.busy.Load()
	if n != 0 && n == l.seen.Load() && l.end(n) {
		// Once may be a busy machine, on which this process did not run; twice is a
		// log that blocks.
		if l.rounds < strainRounds {
			l.strain = strainRounds
		}
		l.rounds = 0
		l.wg.Add(1)
		go l.run()
		return
	}
	l.seen.Store(n)
	if l.active.Load() {
		l.watch.Reset(stall)
	}
}

// alone serves a peer outside of the loop.
func (l *loop) alone(p *peer) {
	defer l.wg.Done()
	p.carryOn(p.step())
}

// add begins to read a peer.
func (l *loop) add(p *peer) {
	fd := p.sock.fd
	l.mu.Lock()
	for len(l.peers) <= fd {
		l.peers = append(l.peers, nil)
	}
	l.peers[fd] = p
	l.mu.Unlock()
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		go p.finish(fmt.Errorf("watching the peer (are fs.epoll.max_user_watches used up?): %w", err))
	}
}

// remove forgets a peer whose descriptor is about to be closed or given away; it
// need not have been added.
func (l *loop) remove(fd int) {
	l.mu.Lock()
	if fd < len(l.peers) {
		l.peers[fd] = nil
	}
	l.mu.Unlock()
}
