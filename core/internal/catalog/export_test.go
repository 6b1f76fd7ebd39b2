package catalog

// WithoutEnds makes of a snapshot what a version wrote that kept no ends of queues
// in it.
func WithoutEnds(b []byte) ([]byte, error) {
	s, err := decodeSnapshot(b)
	if err != nil {
		return nil, err
	}
	w := &writer{}
	err = entries(s.entries, func(kind byte, p []byte) error {
		if kind != entryEnds {
			w.entry(kind, p)
		}
		return nil
	})
	s.entries = w.buf
	return s.encode(), err
}

// Ordering reports whether somebody is between a change, or an image, and handing it
// to the journal; alone: with an image.
func (c *Catalog) Ordering() (some, alone bool) {
	if c.images.order.TryLock() {
		c.images.order.Unlock()
		return false, false
	}
	if c.images.order.TryRLock() {
		c.images.order.RUnlock()
		return true, false
	}
	return true, true
}
