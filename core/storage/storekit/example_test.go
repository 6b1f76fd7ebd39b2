package storekit_test

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

// A backend with six methods becomes a store: here the one in memory. The
// engine places records with a Sequencer, the store keeps them.
func ExampleFromKV() {
	ctx := context.Background()
	store := storekit.FromKV(storage.Params{Segment: 1 << 20, LogID: "example"}, &storekit.MemKV{}, storekit.Options{})
	if err := store.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Shutdown(ctx) }()

	sequencer := storage.NewSequencer(storagetest.NewClock(1_700_000_000_000))
	if err := sequencer.Open(1, store.State(), nil); err != nil {
		fmt.Println(err)
		return
	}
	orders := message.Queue{Topic: "Orders", ID: 3}
	pending := storagetest.NewWriter(message.IndexRules{}).Pending(
		[]storagetest.Message{{Queue: orders, Body: []byte("first"), Tags: "new"}},
		[]storagetest.Message{{Queue: orders, Body: []byte("second"), Keys: "K1"}},
	)
	if err := sequencer.Assign(pending, 0); err != nil {
		fmt.Println(err)
		return
	}
	for i := range pending.Batches {
		if err := store.Append(ctx, &pending.Batches[i]); err != nil {
			fmt.Println(err)
			return
		}
	}

	var chunk storage.Chunk
	if err := store.Read(ctx, storage.ReadRequest{Queue: orders}, &chunk); err != nil {
		fmt.Println(err)
		return
	}
	defer chunk.Release()
	fmt.Println(chunk.Status, "from", chunk.Min, "to", chunk.Max)
	records := chunk.Frags[0]
	for _, unit := range chunk.Units {
		var view message.View
		if err := message.Parse(records, &view); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d at %d: %s\n", unit.Offset, unit.At, view.Body)
		records = records[unit.Size:]
	}
	// Output:
	// FOUND from 0 to 2
	// 0 at 0: first
	// 1 at 111: second
}
