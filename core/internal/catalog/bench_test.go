package catalog_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// What the creation of a topic costs that is answered when topics.json, on a
// disk, holds it: beside that many other topics, one after the other and by 64
// clients at once.
func BenchmarkCreateTopic(b *testing.B) {
	for _, others := range []int{10, 10_000} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("beside=%d/clients=%d", others, clients), func(b *testing.B) {
				d := enginetest.NewDisk()
				d.FS = vfs.OS{}
				dir := b.TempDir()
				e := enginetest.Start(b, enginetest.Options{
					Replication: solo.NewFactory(), Disk: d, Segment: 1 << 30,
					Config: func(c *kernel.Config) { c.Dir = dir },
				})
				var n atomic.Int64
				create := func(upTo, clients int) {
					var wg sync.WaitGroup
					for range clients {
						wg.Go(func() {
							for i := n.Add(1); i <= int64(upTo); i = n.Add(1) {
								if err := e.K.Topics.Put(b.Context(), topic(fmt.Sprintf("a-name-as-long-as-usual-%06d", i), 8)); err != nil {
									b.Error(err)
								}
							}
						})
					}
					wg.Wait()
					n.Store(int64(upTo))
				}
				create(others, 512)
				b.ResetTimer()
				create(others+b.N, clients)
			})
		}
	}
}

// What a list of topics costs with all there are in it, per topic.
func BenchmarkCreateList(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("topics=%d", n), func(b *testing.B) {
			d := enginetest.NewDisk()
			d.FS = vfs.OS{}
			dir := b.TempDir()
			e := enginetest.Start(b, enginetest.Options{
				Replication: solo.NewFactory(), Disk: d, Segment: 1 << 30,
				Config: func(c *kernel.Config) { c.Dir = dir },
			})
			list := make([]command.TopicConfig, n)
			b.ReportAllocs()
			b.ResetTimer()
			for round := range b.N {
				for i := range list {
					list[i] = topic(fmt.Sprintf("a-name-as-long-as-usual-%06d", i), int32(1+round%8))
				}
				if err := e.K.Topics.Put(b.Context(), list...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/topic")
		})
	}
}
