package main

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
)

func TestConformance(t *testing.T) {
	allocatetest.Run(t, allocatetest.Harness{
		Factory: NewFactory(), Form: "in_process",
		Lacks: allocatetest.Lacks{Balance: true}, // one member has it all, on purpose
	})
}

func Example() {
	main()
	// Output:
	// averagely: 0→anna 1→anna 2→ben 3→ben
	// circle: 0→anna 1→ben 2→anna 3→ben
	// hotstandby: 0→anna 1→anna 2→anna 3→anna
}
