package config_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/internal/alloctest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/config"
)

func harness() allocatetest.Harness {
	return allocatetest.Harness{Factory: config.NewFactory(), Form: "in_process", Config: plugin.Raw(`{"rules":[{"client":"10.0.0.00*","queues":["broker-[a-f]/*","t/broker-g/0-2"]}]}`), Lacks: allocatetest.Lacks{Balance: true, Complete: true}}
}

func TestConformance(t *testing.T) { allocatetest.Run(t, harness()) }

func BenchmarkAllocate(b *testing.B) { allocatetest.Benchmark(b, harness()) }

func TestExamples(t *testing.T) { alloctest.Run(t, "testdata/examples", config.NewFactory()) }
