// Package catalog keeps the broker's metadata (topics, subscription groups,
// consumer progress, queue locks, values of behaviours) as records of the built-in topic
// rmq_sys_hardpoint_catalog, queue 0.
//
// # Records
//
// The body of a catalog record is a list of entries (codec.go). Values are
// absolute, deletions are tombstones, so applying a record twice does no harm.
// Applying all records in log order gives the tables; so does applying the
// newest full image and what follows it.
//
// # Layers
//
// The leader changes its tables when a change is published, and answers then.
// From the moment a change is handed to the journal until it is published it
// also stands in the in-flight list; images and snapshots are tables plus
// in-flight changes, so that they hold everything that was ordered before them.
// A change that failed may so survive in an image; its author was told that the
// outcome is not known to be good, and the next value overwrites it.
//
// Consumer progress is the exception: it changes at once, and one record a
// second carries all that changed.
//
// A follower applies what is published, by one goroutine, in log order. A node
// that loses its office, or whose log is cut, builds its tables anew.
//
// # Images
//
// Every segment of the log begins with a full image, ends of queues included
// (image.go). If it is larger than an eighth of a segment, every k-th segment
// does.
//
// A store counts the numbers of a queue by the records that the log has of it. When
// all have expired and its files are lost, or were never there, the newest image and
// the snapshots, which repeat its ends, are what remembers the number to go on with
// (ends.go). An office gets it from there at its beginning.
//
// # Files
//
// config/hardpoint.snapshot makes start fast (snapshot.go). The RocketMQ-shaped
// topics.json, subscriptionGroup.json, consumerOffset.json and messageRequestMode.json
// are written beside it (files.go, modes.go); one that somebody else wrote is authoritative and enters the
// log as a full image before writes open.
//
// Apache's broker goes by topics.json when it takes over, also after a kill. So
// the creation, change or removal of a topic is answered when that file holds it,
// and until then look-ups do not find a new topic, so that no message in it is
// acknowledged either. Changes that come while a file is written share the next
// write. A disk that fails or hangs delays the answer, by settleWait at most, and
// changes nothing else: the log has the topic. Groups and progress are written
// soon, and nobody waits. Nor does anybody for what a follower applies.
package catalog
