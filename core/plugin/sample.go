package plugin

import "context"

// Collector is what a [Meter] can be, too: it shows the metrics of another process
// beside its own.
type Collector interface {
	// Collect calls read at each scrape, at the same time as it reads all else. read
	// bounds itself: the scrape waits for it. What it gives gets the labels added.
	// Calling drop ends that. Samples whose name or labels are none, or that
	// contradict a metric of this process, are left out.
	Collect(read func(context.Context) []Sample, labels ...Label) (drop func())
}

// SampleKind says what a [Sample] is the value of.
type SampleKind int

const (
	// SampleCounter is a counter's.
	SampleCounter SampleKind = iota
	// SampleGauge is a gauge's.
	SampleGauge
	// SampleHistogram is a histogram's.
	SampleHistogram
)

// Sample is the value of one instrument.
type Sample struct {
	// Name and Help are as for [Meter].
	Name, Help string
	Labels     []Label
	Kind       SampleKind
	// Value is that of a counter or gauge, the sum of a histogram.
	Value float64
	// Count and Buckets are a histogram's.
	Count   uint64
	Buckets []Bucket
}

// Bucket tells how many observations of a histogram are not above UpTo.
type Bucket struct {
	UpTo  float64
	Count uint64
}
