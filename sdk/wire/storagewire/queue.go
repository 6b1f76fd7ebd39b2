package storagewire

// queue holds batches in the order of the log. Whatever it holds, adding one and
// taking one from either end costs the same on average, and a queue that is emptied
// now and then takes no new memory.
type queue struct {
	items []waiting
	from  int // of the first
}

// all are the batches; the slice is valid until the next change.
func (q *queue) all() []waiting { return q.items[q.from:] }

func (q *queue) push(w waiting) {
	if len(q.items) == cap(q.items) && q.from > len(q.items)/2 { // as many were taken since the last time
		n := copy(q.items, q.all())
		clear(q.items[n:])
		q.items, q.from = q.items[:n], 0
	}
	q.items = append(q.items, w)
}

// shift takes the first away.
func (q *queue) shift() {
	q.items[q.from] = waiting{}
	if q.from++; q.from == len(q.items) {
		q.items, q.from = q.items[:0], 0
	}
}

// cut leaves the first n.
func (q *queue) cut(n int) {
	clear(q.all()[n:])
	q.items = q.items[:q.from+n]
}
