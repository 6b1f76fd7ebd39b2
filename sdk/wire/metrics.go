package wire

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// MetricsTime is how long Metrics waits for a plugin process: the host's own metrics
// wait with it.
const MetricsTime = 500 * time.Millisecond

const (
	metricsSize = 4 << 20 // bytes of an answer
	helpSize    = 300     // characters kept of a help, and of a label; bytes of a name
	mostLabels  = 16
	mostBuckets = 64
)

// Metrics asks a plugin process what it counts. It waits for [MetricsTime] at most.
// What is beyond the limits (MaxSeries, the length of texts, the number of labels
// and buckets) is left out, and told in a metric. The error is that of gRPC.
func Metrics(ctx context.Context, conn grpc.ClientConnInterface) ([]plugin.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, MetricsTime)
	defer cancel()
	r, err := pluginpb.NewPluginClient(conn).Metrics(ctx, &pluginpb.MetricsRequest{Most: MaxSeries}, grpc.MaxCallRecvMsgSize(metricsSize))
	if err != nil {
		return nil, err
	}
	left := float64(r.GetLeftOut())
	var out []plugin.Sample
	for i, s := range r.GetSeries() {
		if i == MaxSeries {
			left += float64(len(r.GetSeries()) - i)
			break
		}
		if len(s.GetLabels()) > mostLabels || len(s.GetHistogram().GetBuckets()) > mostBuckets || len(s.GetName()) > helpSize {
			left++
			continue
		}
		one := plugin.Sample{Name: s.GetName(), Help: fmt.Sprintf("%.*s", helpSize, s.GetHelp())}
		for _, l := range s.GetLabels() {
			one.Labels = append(one.Labels, plugin.Label{Name: fmt.Sprintf("%.*s", helpSize, l.GetName()), Value: fmt.Sprintf("%.*s", helpSize, l.GetValue())})
		}
		switch v := s.GetValue().(type) {
		case *pluginpb.Series_Counter:
			one.Kind, one.Value = plugin.SampleCounter, v.Counter
		case *pluginpb.Series_Gauge:
			one.Kind, one.Value = plugin.SampleGauge, v.Gauge
		case *pluginpb.Series_Histogram:
			one.Kind, one.Count, one.Value = plugin.SampleHistogram, v.Histogram.GetCount(), v.Histogram.GetSum()
			for _, b := range v.Histogram.GetBuckets() {
				one.Buckets = append(one.Buckets, plugin.Bucket{UpTo: b.GetUpTo(), Count: b.GetCount()})
			}
		default:
			left++
			continue
		}
		out = append(out, one)
	}
	return append(out, plugin.Sample{
		Name: "plugin_metrics_left_out", Help: "Metrics of the process of a plugin that are beyond a limit and are not shown.", Kind: plugin.SampleGauge, Value: left,
	}), nil
}

// Metrics implements pluginpb.PluginServer.
func (p *pluginServer) Metrics(_ context.Context, r *pluginpb.MetricsRequest) (*pluginpb.MetricsResponse, error) {
	if p.meter == nil {
		return &pluginpb.MetricsResponse{}, nil
	}
	return p.meter.collect(int(min(r.GetMost(), MaxSeries))), nil
}
