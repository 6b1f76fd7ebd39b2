package commitlog

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInParallelTellsTheLowest: the error does not depend on who was faster.
func TestInParallelTellsTheLowest(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	higher := make(chan struct{})
	err := inParallel(100, func(i int) error {
		switch i {
		case 3:
			both.Done()
			both.Wait()
			<-higher // 7 fails first
		case 7:
			both.Done()
			both.Wait()
			defer close(higher)
		default:
			return nil
		}
		return fmt.Errorf("number %d", i)
	})
	require.EqualError(t, err, "number 3")
	require.NoError(t, inParallel(0, nil))
}
