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
