//go:build !linux

package external

// collect waits for the end of the process and ends what is left of its group, where
// there are groups.
func (r *runner) collect() {
	r.err = r.cmd.Wait()
	r.group.Lock()
	defer r.group.Unlock()
	r.collected = true
	_ = endGroup(r.cmd.Process) // there is no way to do it before the number is free
}
