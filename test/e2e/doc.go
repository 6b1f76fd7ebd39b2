// Package e2e runs the official Go client, unmodified, against brokers of every
// durable store. The brokers are processes built with the race detector; the
// client, which has races of its own, runs without it.
package e2e
