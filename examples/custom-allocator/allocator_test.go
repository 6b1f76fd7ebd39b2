package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// The tests' own program is the plugin, too: one build less.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for form, f := range map[string]allocate.Factory{
		"in_process": NewFactory(),
		"process":    external.Allocate("hotstandby", external.Command{Path: self, Args: []string{"serve"}}, external.Options{}),
	} {
		allocatetest.Run(t, allocatetest.Harness{
			Factory: f, Form: form,
			Lacks: allocatetest.Lacks{Balance: true}, // one member has it all, on purpose
		})
	}
}

func Example() {
	main()
	// Output:
	// averagely: 0→anna 1→anna 2→ben 3→ben
	// circle: 0→anna 1→ben 2→anna 3→ben
	// config: 0→nobody 1→nobody 2→nobody 3→nobody
	// consistenthash: 0→anna 1→ben 2→ben 3→anna
	// hotstandby: 0→anna 1→anna 2→anna 3→anna
	// machineroom: 0→nobody 1→nobody 2→nobody 3→nobody
	// sticky: 0→anna 1→ben 2→anna 3→ben
	// zone: 0→anna 1→ben 2→anna 3→ben
}
