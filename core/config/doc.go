// Package config turns what a user wrote into one typed [Config].
//
// # Layers
//
// Values come from four layers, each overriding the one before: the defaults
// of the key table, a file (YAML, TOML, or RocketMQ's broker.conf and
// namesrv.conf as properties), environment variables that begin with
// HARDPOINT_, and command line flags. koanf holds and merges the layers; this
// package adds the origin of every value, so that a message can say
// "broker.conf:12" and [Loaded.Show] can say where a value came from.
//
// # Names
//
// There is one name for a key, the same in every layer: RocketMQ's where
// RocketMQ has the key (flushDiskType, mappedFileSizeCommitLog), camelCase
// otherwise. In the environment it is written in upper case with underscores
// between the words and two underscores for a dot: HARDPOINT_FLUSH_DISK_TYPE,
// HARDPOINT_TLS__SERVER__MODE. On the command line the common ones have a flag
// and all of them can be given as --set flushDiskType=SYNC_FLUSH.
//
// Configuration of a plugin lies under plugins.KIND.NAME and is passed to its
// factory as it is; see [Config.PluginRaw].
//
// # Strictness
//
// Nothing is guessed and nothing is ignored in silence. Values lose blanks at
// both ends, byte-order mark and CRLF are accepted, and everything else that is
// not understood is an [Error] that names the place: an unknown key (with the
// nearest known one), a value outside its range, a key given twice (with both
// lines), text that is not UTF-8. [Load] reports all of them at once as
// [*Errors].
//
// RocketMQ's other keys are known too. A key without effect here is accepted
// with a [Warning] that says why; one whose loss would weaken security or
// durability (aclEnable=true, enableDLegerCommitLog=true …) is refused by name.
package config
