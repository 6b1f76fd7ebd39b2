package admin

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/internal/hostlimits"
)

// pools are RocketMQ's queues in front of threads, with their default capacities. There
// are none here, so they are empty; tools show them and look for each.
var pools = map[string]int64{"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}

// idle are numbers that mean something only in RocketMQ's own broker, or of what this
// one does not have yet.
var idle = map[string]string{
	"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "100000",
	"dispatchMaxBuffer": "0", "pageCacheLockTimeMills": "0", "remainTransientStoreBufferNumbs": "2147483647",
	"putMessageEntireTimeMax": "0", "getMessageEntireTimeMax": "0", "putMessageFailedTimes": "0", "putLatency99": "0.00", "putLatency999": "0.00",
	"putMessageDistributeTime":        "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 ",
	"startAcceptSendRequestTimeStamp": "0",
	"timerReadBehind":                 "0", "timerOffsetBehind": "0", "timerCongestNum": "0", "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0",
}

// runtime serves GET_BROKER_RUNTIME_INFO (28).
func (a *Admin) runtime(r *kernel.Request) {
	now, s, st := a.k.Clock.Now(), a.stats.Runtime(), a.k.Store.State()
	t := command.StringMap{}
	number := func(key string, n int64) { t[key] = strconv.FormatInt(n, 10) }
	for k, v := range idle {
		t[k] = v
	}
	for name, capacity := range pools {
		number(name+"ThreadPoolQueueCapacity", capacity)
		number(name+"ThreadPoolQueueSize", 0)
		number(name+"ThreadPoolQueueHeadWaitTimeMills", 0)
	}
	t["brokerActive"] = "true"
	number("brokerVersion", int64(command.Version))
	t["brokerVersionDesc"] = command.VersionName
	number("bootTimestamp", s.Boot.UnixMilli())
	t["runtime"] = span(now.Sub(s.Boot))

	t["putTps"], t["getTransferredTps"] = stats.Rates(s.Put), stats.Rates(s.Transferred)
	t["getTotalTps"], t["getFoundTps"], t["getMissTps"] = stats.Rates(s.Total), stats.Rates(s.Found), stats.Rates(s.Missed)
	number("putMessageTimesTotal", s.Messages)
	number("putMessageSizeTotal", s.Bytes)
	t["putMessageAverageSize"] = string(command.Double(float64(s.Bytes) / float64(max(s.Messages, 1))).Append(nil))
	number("msgPutTotalYesterdayMorning", s.PutMornings.Yesterday)
	number("msgPutTotalTodayMorning", s.PutMornings.Today)
	number("msgPutTotalTodayNow", s.Messages)
	number("msgGetTotalYesterdayMorning", s.GetMornings.Yesterday)
	number("msgGetTotalTodayMorning", s.GetMornings.Today)
	number("msgGetTotalTodayNow", s.Gets)

	number("commitLogMinOffset", int64(st.First))
	number("commitLogMaxOffset", int64(st.Tail))
	number("dispatchBehindBytes", int64(st.Tail-st.Published))
	t["remainHowManyDataToFlush"] = readable(max(int64(st.Tail-st.Durable), 0))
	number("earliestMessageTimeStamp", a.earliest())
	a.disk(t)
	var h command.RuntimeInfoRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	more := command.RuntimeInfoResponse{Software: command.SoftwareHardpoint, FullInHours: -1, OpenFiles: -1, OpenFilesMax: -1, MemoryMaps: -1, MemoryMapsMax: -1}
	if hours := a.k.FullInHours(); hours < math.MaxInt32 {
		more.FullInHours = int64(hours)
	}
	if h.Limits {
		l := hostlimits.Read()
		more.OpenFiles, more.OpenFilesMax, more.MemoryMaps, more.MemoryMapsMax = l.OpenFiles, l.OpenFilesMax, l.MemoryMaps, l.MemoryMapsMax
	}
	body, err := command.EncodeBody(command.KVTable{Table: t})
	if err != nil {
		r.Fail(err)
		return
	}
	w := r.Begin(command.RespSuccess)
	more.Append(&w) // beside the table, which tools print whole
	r.Reply(w, body)
}

// earliest is the store time of the oldest message, ms since epoch; -1: none.
func (a *Admin) earliest() int64 {
	if keep := a.k.Store.Capabilities().Retention; keep != nil {
		segments, err := keep.Segments(a.reading())
		for i := range segments {
			if at := segments[i].FirstStoreTime; err == nil && at > 0 {
				return at
			}
		}
	}
	return -1
}

// disk tells how full the file system of the store is.
func (a *Admin) disk(t command.StringMap) {
	ratio, dir := "-1.0", a.k.Config().Dir
	t["commitLogDirCapacity"] = "Total : unknown, Free : unknown."
	if u, err := a.usage(dir); err == nil && u.Total > 0 {
		ratio = strconv.FormatFloat(float64(u.UsedPercent())/100, 'f', 2, 64)
		t["commitLogDirCapacity"] = fmt.Sprintf("Total : %s, Free : %s.", readable(int64(u.Total)), readable(int64(u.Free)))
	}
	t["commitLogDiskRatio"], t["consumeQueueDiskRatio"] = ratio, ratio
	t["commitLogDiskRatio_"+filepath.Join(dir, "commitlog")] = ratio
}

// readable writes bytes with a unit.
func readable(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for f >= 1024 && unit < 4 {
		f /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", f, "_KMGT"[unit])
}

// span writes how long the broker runs as RocketMQ does.
func span(d time.Duration) string {
	d = max(d, 0)
	return fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]",
		int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60, int(d.Seconds())%60)
}
