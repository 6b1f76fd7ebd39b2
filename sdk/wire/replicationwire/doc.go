// Package replicationwire carries the replication contract between a host and a
// plugin process: one adapter pair for every replication plugin. [NewFactory] is
// the host's half, [NewServer] the plugin's.
//
// A replicator works on its host's store, so this border is crossed in both
// directions: the host asks the replicator, the replicator asks the store.
//
// # Connections
//
// gRPC carries Describe, Probe and Open (package replicationpb). All else goes over
// two data connections per instance, Unix sockets that are made as those of
// storagewire are: in a directory of mode 0700 that the host makes and removes
// again, with a nonce. The plugin listens and the host connects although the plugin
// is who asks for the store: so nothing of the host can be connected to by anybody,
// no second gRPC server with certificates of its own is needed (go-plugin's broker
// would be one), and payload is not copied through gRPC.
//
//   - The turn connection ('T') carries everything whose order counts: calls of the
//     replicator (Start, Append, Barrier, Shutdown, Members), its outcomes and
//     offices, and its calls that change the log. Each side has one reader, which
//     handles frames in their order.
//   - The store connection ('S') carries the replicator's calls that do not change
//     the log (Read, Get, ReadLog, Offsets, Sync), many at once, as storagewire has
//     them.
//
// An instance lives as long as its turn connection.
//
// # A Pending crosses once
//
// Append takes a Pending to the plugin with its bytes: a replicator with replicas
// needs them. They do not come back. The plugin's Sequencer is one of its own; what
// it does (an office opened, a Pending placed, taken back) is told to the host
// before anything that follows from it, and the host's Sequencer does the same with
// the Pending that it kept. Both have the same rules, the same state and the same
// store time, so both place and stamp alike; the plugin says where it ended, and a
// host that comes to another end takes the plugin for broken. When the replicator
// appends a batch of that Pending to the store, its number crosses, and the host
// appends its own copy. Hence the engine sees the units, positions and batches
// of the Pending that it brought, as in process.
//
// Batches that the replicator made itself (what a follower got from its leader,
// frames of an agreement protocol) cross whole.
//
// # Frames
//
// Those of storagewire: package data. The body is listed behind the kind; P is the
// id of a Pending, which is that of the Append that brought it.
//
// To the plugin:
//
//	start      state of the log (proto LogState)        answered by done
//	shutdown                                            answered by done
//	barrier                                             answered by done
//	members    change, id, addr                         answered by done
//	append     the Pending, as storagewire's Append     answered by done; its id is P
//	forget     topic, queue
//	cancel     the id is that of the call, in both directions
//	log done   marks, failure                           answers a call of the store
//	role done  failure                                  answers role, gone, reopened
//	state      state of the log, as for start           before a reopened that succeeds
//
// To the host:
//
//	done       failure; empty: success
//	opened     term, segment, tail, last store time, ends of queues
//	assigned   P; lead, last store time, at, end
//	undone     P; first batch, 1 for Rewind
//	moved      tail, last store time, ends: a Pending of the replicator's own was
//	           placed or taken back
//	freed      P; number of a batch that never went to the store
//	store      P, number of the batch, term, at         answered by log done
//	whole      a batch                                  answered by log done
//	publish, truncate   position                        answered by log done
//	reset      first, ends                              answered by log done
//	outcome    P; from, to, outcome, failure
//	role       role                                     answered by role done
//	over       the id is that of a role whose office ended
//	status     role, replicas
//	gone, reopened: facet Reopener of the store         answered by role done
//
// # Calls
//
// Deadlines and cancellations cross, but that Append cannot be cancelled: it returns
// when the replicator's has, and never earlier, since cancelling does not un-order. OnRole is called for role, with a
// context that ends with over. Role and Status are copies: the plugin tells a new
// role before the answer after which it counts, and the status once a second when
// it changed. Errors keep their identity in both directions, those of the host's
// store too when they come back in an outcome.
//
// Params.Logger writes to the process's standard error, Meter and Clock are the
// plugin's own. Of the store the plugin gets RawLog and Reopener, not Retention and
// KeyIndex, which are the engine's. Params.Network does not cross: Listen and Dial refuse.
//
// # When the process is gone
//
// Groups under way are Unknown. The role stays, with ReadOnly that says by name
// what happened, Append fails with replication.ErrReadOnly, Barrier with
// plugin.ErrUnavailable, and reads, which the store serves, go on. The process is
// started again, after a pause that doubles from 100 ms to 30 s, and its replicator
// is started on the running store; the office that it takes has a higher term
// (Sequencer.Term tells it which was the last), and writes go on.
//
// When another process takes the place of one that is well (a new version), the office
// ends first: the replicator is shut down, which answers all that it has, and the one in
// the new process is opened and started. Meanwhile Append fails with
// replication.ErrReadOnly. Two offices never overlap.
//
// A plugin that does not do in time what waits for nobody else ends in the same way:
// the answers to Start, Append and Shutdown, to Barrier where it named no replicas, and
// to any call that was cancelled. Outcomes may wait for as long as they like.
//
// A broken frame, or a placement that the host does not arrive at, ends the
// process's use in the same way.
package replicationwire
